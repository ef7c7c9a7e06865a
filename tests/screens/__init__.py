"""What a user sees and types.

    processes       the command line as a process: in this one with captured streams, or on pipes and pseudo-terminals
    answers         an answer of two lines, and what is said about it
    chats           chats on pseudo-terminals, with scripted replies
    forked          scripted commands as forks of a process that has them loaded
    terminal        a terminal in memory: what its screen shows and what is in the scrollback
    browser         a headless Chromium
    markup          a page without a browser: its elements, and its words
    hostile         text that tries to harm whoever shows it

Without a browser, tests that need one are skipped.
"""
