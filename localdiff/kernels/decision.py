"""The decision of a step in Triton, from its statistics: accepted positions, next canvas, whether to stop.

Knows the tensors that a static step reads and writes, whose addresses never change; `decision_layout` has the places in
those that it exchanges with the host. Shape letters: L canvas, D width.
"""

from __future__ import annotations

import torch

from localdiff.diffusion.reading import LogitStatistics
from localdiff.kernels.decision_layout import CONTROLS, TEMPERATURE, outcome_size
from quant.cuda.launch_arguments import on_device_of, power_of_two

_CHUNK = 32
"""Positions whose entropies are compared with all others at a time."""


class StepBuffers:
    """Device-side buffers of a step.

    Attributes:
        inputs: int32 [8 + 2 L], sent by the host: controls, uniforms (fp32 as their bits), fresh noise.
        controls, uniforms, fresh, temperature: parts of it.
        canvas: int64 [L]; draft: int32 [L]; streak: int32 [1]: state handed from step to step.
        soft: [L, D], soft embedding of the last step; zeros on the first, which is equivalent to none.
        outcome: int32, the results for the host.
    """

    def __init__(self, length: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.inputs = torch.zeros(CONTROLS + 2 * length, dtype=torch.int32, device=device)
        self.controls = self.inputs[:CONTROLS]
        self.temperature = self.controls[TEMPERATURE : TEMPERATURE + 1].view(torch.float32)
        self.uniforms = self.inputs[CONTROLS : CONTROLS + length].view(torch.float32)
        self.fresh = self.inputs[CONTROLS + length :]
        self.canvas = torch.zeros(length, dtype=torch.int64, device=device)
        self.draft = torch.zeros(length, dtype=torch.int32, device=device)
        self.streak = torch.zeros(1, dtype=torch.int32, device=device)
        self.soft = torch.zeros(length, width, dtype=dtype, device=device)
        self.outcome = torch.zeros(outcome_size(length), dtype=torch.int32, device=device)


def decide(stats: LogitStatistics, buffers: StepBuffers) -> None:
    """Decides in one launch, from the controls and the fresh ids of this step, and the draft and streak of the last.

    Of positions with the same entropy, the first is accepted first. Overwrites canvas, draft and streak, and all of the
    outcome but overflow and tail.
    """
    from localdiff.kernels.decision_kernels import decide_kernel

    length = len(buffers.canvas)
    with on_device_of(buffers.canvas):
        decide_kernel[(1,)](
            buffers.controls,
            stats.entropy,
            stats.argmax,
            stats.argmax_prob,
            stats.sampled,
            buffers.fresh,
            buffers.canvas,
            buffers.draft,
            buffers.streak,
            buffers.outcome,
            length,
            POSITIONS=power_of_two(length),
            CHUNK=_CHUNK,
            num_warps=8,
            enable_fp_fusion=True,
        )
