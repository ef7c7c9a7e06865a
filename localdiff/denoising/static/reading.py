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
from ...diffusion.search import inverse_cumulative
from ...kernels.decision import decide, decide_plainly
from ...kernels.logits import process, statistics
from .buffers import StepBuffers

Read: TypeAlias = Callable[[Tensor, StepBuffers, float | None, bool], Tensor]
"""(logits [L, V], buffers, soft cap, whether samples are drawn) -> log-normalizer [L]."""


class _Given:
    """Samples from uniforms that are on the device already."""

    whole_canvas = False

    def __init__(self, uniforms: Tensor) -> None:
        self._uniforms = uniforms

    def start_step(self, length: int) -> None:
        del length

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        return inverse_cumulative(probs, self._uniforms[first_row : first_row + len(probs)])


def read_through_torch(logits: Tensor, buffers: StepBuffers, softcap: float | None, sampled: bool) -> Tensor:
    """Statistics and decision in torch, the plain path."""
    stats = read_logits(
        logits,
        softcap=softcap,
        temperature=buffers.temperature,
        noise=_Given(buffers.uniforms) if sampled else None,
    )
    _decide(decide_plainly, stats, buffers)
    return stats.log_normalizer


def read_through_triton(logits: Tensor, buffers: StepBuffers, softcap: float | None, sampled: bool) -> Tensor:
    """Statistics and decision in four Triton launches."""
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        stats = statistics(
            logits,
            softcap=softcap,
            temperature=buffers.temperature,
            uniforms=buffers.uniforms if sampled else None,
        )
        _decide(decide, stats, buffers)
        process(logits, softcap=softcap, temperature=buffers.temperature)
    return stats.log_normalizer


def _decide(how: Callable[..., None], stats: LogitStatistics, buffers: StepBuffers) -> None:
    how(
        buffers.controls,
        stats,
        fresh=buffers.fresh,
        canvas=buffers.canvas,
        draft=buffers.draft,
        streak=buffers.streak,
        outcome=buffers.outcome,
    )
