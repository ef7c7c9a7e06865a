"""`localdiff bench step`: time of a denoise step, by part, and how far it is from what the machine can do.

    subject     what is measured: a real model, or random weights at the released size
    measure     times prefill, denoise steps and commit passes
    parts       the seconds of a step by part of the network
    work        bytes and operations of each part
    ceilings    what this machine can do at best, measured
    layers      extrapolates from a few layers to all of them
    report      all of it as a table and as one line of JSON

Knows the model and its cache; knows nothing about prompts, answers or terminals.
"""
