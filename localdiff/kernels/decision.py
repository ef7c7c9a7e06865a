"""The decision of a step in Triton, from its statistics: accepted positions, next canvas, whether to stop.

Shape letters: L canvas.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localdiff.diffusion.reading import LogitStatistics
from quant.cuda.launch_arguments import power_of_two

_CHUNK = 32
"""Positions whose entropies are compared with all others at a time."""


def decide(
    controls: Tensor,
    stats: LogitStatistics,
    *,
    fresh: Tensor,
    canvas: Tensor,
    draft: Tensor,
    streak: Tensor,
    outcome: Tensor,
) -> None:
    """Decides in one launch. Of positions with the same entropy, the first is accepted first.

    Args:
        controls, stats: those of this step; `decision_layout` has the places of controls and outcome.
        fresh: int32 [L], random ids for the positions that are not accepted.
        canvas: int64 [L], overwritten by the next one.
        draft: int32 [L], the argmax ids of the last step, overwritten by this step's.
        streak: int32 [1], for how many steps the draft has stayed the same; updated.
        outcome: written, except for overflow and tail.
    """
    from localdiff.kernels.decision_kernels import decide_kernel

    length = len(canvas)
    with torch.cuda.device_of(canvas):  # type: ignore[no-untyped-call]
        decide_kernel[(1,)](
            controls,
            stats.entropy,
            stats.argmax,
            stats.argmax_prob,
            stats.sampled,
            fresh,
            canvas,
            draft,
            streak,
            outcome,
            length,
            POSITIONS=power_of_two(length),
            CHUNK=_CHUNK,
            num_warps=8,
        )
