"""A denoise step with static shapes and buffers and no host synchronization, which a CUDA graph can capture.

    inputs, one copy ─► [ commit rows? ─ canvas ─► network ─► statistics ─► decision ─► soft ] ─► outcome, one copy
                              └────────────── canvas, draft, soft: stay on the device ──────────┘

    exchange     what the host sends to a step, and reads back
    reading      statistics and decision, in Triton or in torch
    program      a step over these buffers and a cache: run once, then captured and replayed
    cuda_graphs  capture of CUDA graphs, and their memory
    steps        the steps of a block, launched ahead until the block may be about to end

On a CPU the same code runs eagerly, and is tested there against `localdiff.denoising.dynamic`.
"""
