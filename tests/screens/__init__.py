"""What a user would sit at.

    processes       the command line as a process: in this one with captured streams, or on pipes and pseudo-terminals
    chats           chats on pseudo-terminals, with scripted replies
    forked          scripted commands as forks of a process that has them loaded
    terminal        one in memory: what stands on its screen and in the scrollback
    browser         a headless Chromium
    markup          a page without one: its elements, and its words
    hostile         text that would like to do something to whoever shows it

Where there is no browser, tests that want one are skipped.
"""
