"""A denoise step with static shapes and buffers and no host synchronization, which a CUDA graph can capture.

    inputs, one copy ─► [ commit rows? ─ canvas ─► network ─► statistics ─► decision ─► soft ] ─► outcome, one copy
                              └────────────── canvas, draft, soft: stay on the device ──────────┘

    buffers      the tensors that a step reads and writes
    reading      statistics and decision, in Triton or in torch
    program      a step over these buffers and a cache
    cuda_graphs  captured steps, which a program's runs replay from the second one on
    outcome      what the host reads of a step
    steps        the steps of a block: sent, run and asked for, each before the last one is over

On a CPU the same code runs eagerly, and is tested there against `localdiff.denoising.plain`.
"""
