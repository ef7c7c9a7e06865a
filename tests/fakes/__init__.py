"""Stand-ins for a model, the network and more: scripted, with answers known in advance.

    engine        real events of a script, without torch
    attention     kernels of attention, in torch
    chat_model    a scripted model for chats that remembers what it was asked
    canvas, player    events that look like a condensing canvas; the same in real time, for the command line
    cli           the real command line with any of these: `python -m tests.fakes.cli SCRIPT ARGUMENTS…`
    traces        traces of the scripted engine, and of made-up runs of any size
    trace_pair    two traces that diverge
    hub           a small server that speaks as much of the Hub's protocol as a download needs
    download_log  an observer of downloads that remembers what it was told
    step_report   a report of `bench step` over made-up timings
    clock         a clock that a test moves
    windows       Windows as Python shows it, around the real command line
    permissions   file permissions that bind root, too
    threads       as many torch threads as a test wants

Runs keep the promises of `localdiff.events`, so that every observer can be tested with them.
"""
