"""Jobs that can be stopped anywhere, and the verification of their outputs.

    job             the description of a job
    identity        what determines an output, and how two of them differ
    run             from the first byte to the renamed directory
    shard, pool     one file of weights; its slices, encoded in parallel
    output          the output directory, from unfinished to published
    replaceable     what an output may take the place of, and what is deleted for it
    unfinished      what a job keeps in an unfinished output
    verify          a directory against its manifest
    refresh         small files of a finished output, replaced
    events          progress events of jobs and verifications

This module itself is light, so that events can be named without loading torch.
"""
