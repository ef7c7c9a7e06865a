"""Jobs that can be stopped anywhere, and the verification of what they left.

    job             the description of one
    run             from the first byte to the renamed directory
    shard, pool     one file of weights; its slices, side by side
    output          the directory, from its unfinished to its published state
    verify          a directory against its manifest
    events          what is told of both

This module itself is light, so that events can be named without loading torch.
"""
