"""`localdiff bench step`: how long one denoise step takes, where the time goes, and how far that is from the machine.

    subject     what is measured: a real model, or random weights at the released size
    measure     prefill, denoise steps, commit passes, against the clock
    parts       the seconds of a step by part of the network
    work        bytes and operations of each part
    ceilings    what this machine can do at best, measured
    layers      from a few layers to all of them
    report      all of it as a table and as one line of JSON

Knows the model and its cache; knows nothing about prompts, answers or terminals.
"""
