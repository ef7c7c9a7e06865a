"""The outcome of a step on the host, as an event.

Knows the layout of an outcome and the fields of an event; computes only a mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..denoising import BlockContext
from ..diffusion.schedule import temperature_at
from ..events import DenoiseStep
from ..kernels.decision import CONFIDENT, HEADER, MEAN, ROWS, STABLE

NEAR = 20.0
"""Mean entropy in thresholds below which the next step may end a block. A step that is sent for nothing costs as much
as the host's share of some hundred steps, so this errs on the side of waiting."""


def may_end(outcome: Tensor, context: BlockContext) -> bool:
    """Whether the step behind this one may well be its block's last, as far as the mean entropy tells.

    Args:
        outcome: on the host, of a step that does not end the block.
    """
    if context.stop_rule in ("never", "stable"):
        return context.stop_rule == "stable"
    return bool(outcome[MEAN].view(torch.float32) < NEAR * context.settings.confidence)


def event_of(outcome: Tensor, step: int, context: BlockContext, *, seconds: float, now: float) -> DenoiseStep:
    """The event of a step.

    Args:
        outcome: on the host; `localdiff.kernels.decision` has its layout.
        seconds: duration of the step; now: when its outcome arrived, on the clock of `context.started`.
    """
    rows = outcome[HEADER:].view(ROWS, -1)
    entropy = rows[2].view(torch.float32)
    return DenoiseStep(
        block=context.block,
        step=step,
        max_steps=context.settings.steps,
        temperature=temperature_at(step, context.settings),
        argmax_ids=tuple(rows[0].tolist()),
        argmax_probs=tuple(rows[1].view(torch.float32).tolist()),
        entropies=tuple(entropy.tolist()),
        accepted=tuple(rows[3].bool().tolist()),
        sampled_ids=tuple(rows[4].tolist()),
        shown_ids=tuple(rows[5].tolist()),
        mean_entropy=float(entropy.mean()),
        stable=bool(outcome[STABLE]),
        confident=bool(outcome[CONFIDENT]),
        seconds=seconds,
        elapsed=now - context.started,
    )
