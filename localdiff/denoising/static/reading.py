"""Statistics and decision of a step: from raw logits to the next canvas, in Triton or in torch.

Both overwrite the logits with what self-conditioning takes, and fill the outcome; neither makes the host wait.
Shape letters: L canvas, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from localdiff.denoising.step import event_rows
from localdiff.diffusion.reading import LogitStatistics, read_logits
from localdiff.diffusion.sampler import accept, renoise
from localdiff.diffusion.search import inverse_cumulative
from localdiff.kernels.decision import StepBuffers, decide
from localdiff.kernels.decision_layout import (
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
from localdiff.kernels.logits import process, statistics
from quant.modules.embedding import probabilities

BLOCK = 16
"""Rows whose probabilities are computed at a time: at full size 17 MB in fp32."""


class ReadAndDecide(Protocol):
    """Reads the logits of a step, and decides what is accepted, and whether to stop."""

    def __call__(
        self, logits: Tensor, buffers: StepBuffers, *, softcap: float | None, sampled: bool, as_probabilities: bool
    ) -> Tensor:
        """The log-normalizer [L] of the processed logits.

        Args:
            logits: [L, V], raw; overwritten with the processed ones.
            sampled: whether ids are drawn, rather than the most probable ones taken.
            as_probabilities: whether the processed logits are then overwritten with their probabilities: this computes
                each exponential once, where a product with the embedding would compute it for every tile.
        """
        ...


def read_through_triton(
    logits: Tensor, buffers: StepBuffers, *, softcap: float | None, sampled: bool, as_probabilities: bool
) -> Tensor:
    """Statistics and decision in four Triton launches."""
    stats = statistics(
        logits,
        softcap=softcap,
        temperature=buffers.temperature,
        uniforms=buffers.uniforms if sampled else None,
    )
    decide(stats, buffers)
    process(
        logits,
        softcap=softcap,
        temperature=buffers.temperature,
        log_normalizer=stats.log_normalizer if as_probabilities else None,
    )
    return stats.log_normalizer


def read_through_torch(
    logits: Tensor, buffers: StepBuffers, *, softcap: float | None, sampled: bool, as_probabilities: bool
) -> Tensor:
    """Statistics and decision in torch, the plain path."""
    stats = read_logits(
        logits,
        softcap=softcap,
        temperature=buffers.temperature,
        noise=_Uniforms(buffers.uniforms) if sampled else None,
    )
    decide_plainly(stats, buffers)
    if as_probabilities:
        for scores, normalizer in zip(
            torch.split(logits, BLOCK), torch.split(stats.log_normalizer, BLOCK), strict=True
        ):
            scores.copy_(probabilities(scores, normalizer, logits.dtype))
    return stats.log_normalizer


def decide_plainly(stats: LogitStatistics, buffers: StepBuffers) -> None:
    """What `localdiff.kernels.decision.decide` does, in torch; it does not make the host wait either."""
    controls, streak, outcome = buffers.controls, buffers.streak, buffers.outcome
    in_fp32 = controls.view(torch.float32)
    entropy, ids = stats.entropy, stats.argmax.int()
    accepted = accept(entropy, in_fp32[BOUND])
    same = (controls[STEP] > 1) & (ids == buffers.draft).all()
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
    outcome[HEADER:] = event_rows(stats, accepted, buffers.canvas).flatten()
    buffers.draft.copy_(ids)
    buffers.canvas.copy_(renoise(stats.sampled, accepted, buffers.fresh))


class _Uniforms:
    """Sample noise from uniforms that were sent to the device."""

    whole_canvas = False

    def __init__(self, uniforms: Tensor) -> None:
        self._uniforms = uniforms

    def start_step(self, length: int) -> None:
        del length

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        return inverse_cumulative(probs, self._uniforms[first_row : first_row + len(probs)])
