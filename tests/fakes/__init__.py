"""What answers where there is no model, and no network: scripted, and known beforehand.

    engine          real events of a script, without torch
    attention       kernels of attention, in torch
    chat_model      of a chat, with a memory of what it was asked
    canvas, player  events that look like a condensing canvas; the same in real time, behind the command line
    cli             the real command line with any of them: `python -m tests.fakes.cli SCRIPT ARGUMENTS…`
    traces          of the scripted engine, and of made-up runs of any size
    trace_pair      two of them that part
    hub             a small server that speaks as much of the Hub as a download needs
    download_log    what an observer of downloads was told
    step_report     of `bench step`, over timings that were made up
    clock           one that a test moves
    windows         what Python looks like there, around the real command line
    permissions     that bind root too
    file_limit      a disk that is full, as far as whoever writes can tell
    threads         as many of torch's as a test wants

Runs keep the promises of `localdiff.events`, so that every observer can be tested with them.
"""
