"""`localdiff bench step`: time of a denoise step, by part, and how far it is from what the machine can do.

    run                                   a measurement from start to end
    subject, random_weights, released     what is measured: a real model, or random weights at the released size
    measure                               times the passes of a block, and counts how rows spread over the experts
    parts, code_paths                     the seconds of a step by part of the network, and the code path of each
    work                                  bytes and operations of each part
    ceilings, memory                      what this machine can do at best, and how much memory was used
    layers                                extrapolates from a few layers to all of them
    report, report_text                   every figure, and all of them as a table and as one line of JSON

Knows the model and its cache; knows nothing about prompts, answers or terminals.
"""
