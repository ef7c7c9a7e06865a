"""Models that a test can run, and what is said of them.

    tiny            three layers with random weights, for whole generations
    speaking        real weights and a real cache, with a script in its mouth
    endless         one that never ends its turn, and its runs compared event by event
    numberless      one over tensors that have shapes and no numbers, and a static step of it
    quantized       quantized modules by themselves
    native          whether this machine should have the CPU's kernel
    adapters        adapters that change something, and what a model makes with them
    all_experts     experts that a graph can be captured of
    steps           denoisers of a path that a device would not choose by itself
    reference       what `transformers` computes from a checkpoint: the referee
    events          what is asked of the events of a run
    loaded          the network of a checkpoint, in one call
    caches          what was read in pieces against what was read at once
    held            what a model holds, for comparison with its plan
    allocations     bytes that a computation holds at once
    process_memory  bytes that this process holds

`reference` knows nothing of localdiff, so that it cannot agree with it by accident.
"""
