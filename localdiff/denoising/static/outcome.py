"""What the host reads of a step's outcome: its event, and whether the block may end with the next one.

`localdiff.kernels.decision` has the layout of an outcome.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...events import DenoiseStep
from ...kernels.decision import CONFIDENT, HEADER, MEAN_ENTROPY, ROWS, STABLE
from ..plain import BlockSettings, step_event

NEAR = 20.0
"""Mean entropy in thresholds below which the next step may end a block. A step that is sent for nothing costs as much
as the host's share of some hundred steps, so this errs on the side of waiting."""


def may_end(outcome: Tensor, block: BlockSettings) -> bool:
    """Whether the step behind this one may well be its block's last, as far as the mean entropy tells.

    Args:
        outcome: on the host, of a step that does not end the block.
    """
    if block.stop_rule in ("never", "stable"):
        return block.stop_rule == "stable"
    return bool(outcome[MEAN_ENTROPY].view(torch.float32) < NEAR * block.sampler.confidence)


def event_of(outcome: Tensor, step: int, block: BlockSettings, *, seconds: float, now: float) -> DenoiseStep:
    """The event of a step.

    Args:
        outcome: on the host.
        seconds: duration of the step; now: when its outcome arrived, on the clock of `block.started`.
    """
    return step_event(
        outcome[HEADER:].view(ROWS, -1),
        step,
        block,
        stable=bool(outcome[STABLE]),
        confident=bool(outcome[CONFIDENT]),
        seconds=seconds,
        now=now,
    )
