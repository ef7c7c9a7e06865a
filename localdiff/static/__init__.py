"""A denoise step in which nothing moves: fixed buffers, fixed shapes, and no answer that the host waits for in between.

    inputs, one copy ─► [ commit rows? ─ canvas ─► network ─► statistics ─► decision ─► soft ] ─► outcome, one copy
                              └────────────── canvas, draft, soft: stay on the device ──────────┘

    buffers      the tensors that a step reads and leaves behind
    reading      statistics and decision, in Triton or through torch
    program      a step over one bucket of the cache
    recording    CUDA graphs, which a program's runs are replays of, from the second one on
    outcome      what it told, as an event
    denoiser     blocks over such programs, or over the plain step where that is asked for

On a CPU the same code runs as it stands, and is held there against `localdiff.denoising`.
"""

from .denoiser import Denoiser

__all__ = ["Denoiser"]
