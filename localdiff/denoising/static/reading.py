"""Statistics and decision of a step: from raw logits to the next canvas, in Triton or in torch.

Both leave the logits processed, fill the outcome and return what self-conditioning needs; neither makes the host wait.
Shape letters: L canvas, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from ...diffusion.reading import LogitStatistics, read_logits
from ...diffusion.sampler import accept, renoise
from ...diffusion.search import inverse_cumulative
from ...kernels.decision import decide
from ...kernels.decision_layout import (
    BOUND,
    CONFIDENCE,
    HEADER,
    NEEDS_CONFIDENT,
    NEEDS_STABLE,
    NEVER,
    PAD,
    RULE,
    STABILITY,
    STEP,
)
from ...kernels.logits import process, statistics
from ..plain import event_rows
from .buffers import StepBuffers

Read: TypeAlias = Callable[[Tensor, StepBuffers, float | None, bool], Tensor]
"""(logits [L, V], buffers, soft cap, whether samples are drawn) -> log-normalizer [L]."""


def read_through_triton(logits: Tensor, buffers: StepBuffers, softcap: float | None, sampled: bool) -> Tensor:
    """Statistics and decision in four Triton launches."""
    stats = statistics(
        logits,
        softcap=softcap,
        temperature=buffers.temperature,
        uniforms=buffers.uniforms if sampled else None,
    )
    _decide(decide, stats, buffers)
    process(logits, softcap=softcap, temperature=buffers.temperature)
    return stats.log_normalizer


def read_through_torch(logits: Tensor, buffers: StepBuffers, softcap: float | None, sampled: bool) -> Tensor:
    """Statistics and decision in torch, the plain path."""
    stats = read_logits(
        logits,
        softcap=softcap,
        temperature=buffers.temperature,
        noise=_Uniforms(buffers.uniforms) if sampled else None,
    )
    _decide(decide_plainly, stats, buffers)
    return stats.log_normalizer


def _decide(decision: Callable[..., None], stats: LogitStatistics, buffers: StepBuffers) -> None:
    decision(
        buffers.controls,
        stats,
        fresh=buffers.fresh,
        canvas=buffers.canvas,
        draft=buffers.draft,
        streak=buffers.streak,
        outcome=buffers.outcome,
    )


def decide_plainly(
    controls: Tensor,
    stats: LogitStatistics,
    *,
    fresh: Tensor,
    canvas: Tensor,
    draft: Tensor,
    streak: Tensor,
    outcome: Tensor,
) -> None:
    """What `localdiff.kernels.decision.decide` does, in torch; it does not make the host wait either."""
    in_fp32 = controls.view(torch.float32)
    entropy, ids = stats.entropy, stats.argmax.int()
    accepted = accept(entropy, in_fp32[BOUND])
    same = (controls[STEP] > 1) & (ids == draft).all()
    torch.where(same, streak + 1, torch.zeros_like(streak), out=streak)
    mean = entropy.mean()
    stable, confident = streak[0] >= controls[STABILITY], mean < in_fp32[CONFIDENCE]
    rule = controls[RULE]
    stop = (
        (stable | (rule & NEEDS_STABLE == 0))
        & (confident | (rule & NEEDS_CONFIDENT == 0))
        & (rule & NEVER == 0)
        & (ids != controls[PAD]).any()
    )
    header = (stable, confident, stop, entropy.isfinite().all(), mean.view(torch.int32))
    outcome[: len(header)] = torch.stack([entry.int() for entry in header])
    outcome[HEADER:] = event_rows(stats, accepted, canvas).flatten()
    draft.copy_(ids)
    canvas.copy_(renoise(stats.sampled, accepted, fresh))


class _Uniforms:
    """The noise of a sample, from uniforms that were sent to the device."""

    whole_canvas = False

    def __init__(self, uniforms: Tensor) -> None:
        self._uniforms = uniforms

    def start_step(self, length: int) -> None:
        del length

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        return inverse_cumulative(probs, self._uniforms[first_row : first_row + len(probs)])
