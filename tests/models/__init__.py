"""Models that a test can run, and helpers to examine them.

    tiny            three layers with random weights, for whole generations
    speaking        real weights and a real cache, but scripted answers
    endless         a model that never ends its turn, and its runs compared event by event
    numberless      a model over tensors with shapes but no numbers, and a static step of it
    quantized       single quantized modules
    native          whether this machine should have the CPU's kernel
    adapters        adapters that change something, and what a model computes with them
    all_experts     experts whose computation can be captured in a graph
    steps           denoisers with a path that a device would not choose by itself; all comparisons of a path
    reference       what `transformers` computes from a checkpoint
    events          what tests ask about the events of a run
    loaded          the network of a checkpoint, in one call
    caches          a cache that was read in pieces compared with one that was read at once
    held            what a model holds, for comparison with its plan
    allocations     bytes that a computation holds at once

`reference` knows nothing of localdiff, so it cannot agree with it by accident.
"""
