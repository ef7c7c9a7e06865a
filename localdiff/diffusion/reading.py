"""Reading the logits of a canvas: soft cap, temperature, and every statistic a denoise step needs, in one pass.

Works in blocks of rows and in place, in two buffers that all blocks share. Nothing of the size canvas times vocabulary
exists in fp32: at full size that is 268 MB per copy, and naive code holds several. On a CPU a block is sized to fit the
caches of the cores (one row per thread at full size), which is ten times as fast.
Shape letters: L canvas, V vocabulary, R rows of a block, K most probable ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from localdiff.diffusion.noise import Noise, SampleNoise
from localdiff.diffusion.search import argmax

MAX_ELEMENTS = 8 * 1024 * 1024
"""A block of rows stays under this many elements: 32 rows of the full vocabulary, 34 MB in fp32."""
# The same limit per thread on a CPU: 1 MB in fp32, in each of two buffers.
_CACHED_ELEMENTS = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class TopIds:
    """The most probable ids of each row, in descending order.

    Attributes:
        ids: [L, K].
        probs: fp32 [L, K], their probabilities.
    """

    ids: Tensor
    probs: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class LogitStatistics:
    """Statistics of one denoise step's logits, at this step's temperature.

    All tensors are [L], on the logits' device.

    Attributes:
        entropy: fp32, in nats; computed once and used for acceptance, for stopping and for the event.
        argmax: most probable id.
        argmax_prob: fp32, its probability.
        sampled: id drawn from the distribution.
        log_normalizer: fp32, log-sum-exp of the processed logits as they are stored.
        top: None if `record_top_k` is 0.
    """

    entropy: Tensor
    argmax: Tensor
    argmax_prob: Tensor
    sampled: Tensor
    log_normalizer: Tensor
    top: TopIds | None = None


class ReadLogits(Protocol):
    """A function that does what `read_logits` does, perhaps through a kernel."""

    def __call__(
        self, logits: Tensor, *, softcap: float | None, temperature: float, noise: Noise | None, record_top_k: int = 0
    ) -> LogitStatistics: ...


def read_logits(
    logits: Tensor,
    *,
    softcap: float | None,
    temperature: float | Tensor,
    noise: SampleNoise | None,
    record_top_k: int = 0,
) -> LogitStatistics:
    """Reads raw logits [L, V] and overwrites them with the processed ones: capped, divided by `temperature`, rounded.

    The processed logits are what self-conditioning continues from; they keep the dtype of `logits`, as in the
    reference, while all statistics but `log_normalizer` are taken in fp32 before that rounding.

    Args:
        temperature: a number, or a scalar on the logits' device.
        noise: where samples come from; None takes the argmax in their place.
        record_top_k: K, how many of the most probable ids to report.
    """
    length, vocab_size = logits.shape
    count = min(record_top_k, vocab_size)
    top = TopIds(
        ids=logits.new_empty(length, count, dtype=torch.int64),
        probs=logits.new_empty(length, count, dtype=torch.float32),
    )
    stats = LogitStatistics(
        entropy=logits.new_empty(length, dtype=torch.float32),
        argmax=logits.new_empty(length, dtype=torch.int64),
        argmax_prob=logits.new_empty(length, dtype=torch.float32),
        sampled=logits.new_empty(length, dtype=torch.int64),
        log_normalizer=logits.new_empty(length, dtype=torch.float32),
        top=top if count else None,
    )
    block = _block(vocab_size, logits.device)
    if noise is not None:
        noise.start_step(length)
        block = length if noise.whole_canvas else block
    first, second = (logits.new_empty(min(block, length), vocab_size, dtype=torch.float32) for _ in range(2))
    for start in range(0, length, block):
        rows = slice(start, start + block)
        scores = first[: len(logits[rows])].copy_(logits[rows])
        process(scores, softcap, temperature)
        logits[rows] = scores
        stored = second[: len(scores)].copy_(logits[rows])
        stats.log_normalizer[rows] = _log_sum_exp(stored)
        stats.argmax[rows] = argmax(scores)
        peak = scores.amax(dim=-1, keepdim=True)
        probs = torch.sub(scores, peak, out=stored).exp_()
        total = probs.sum(dim=-1, keepdim=True)
        stats.entropy[rows] = _entropy(scores.sub_(peak), probs, total)
        probs.div_(total)
        stats.argmax_prob[rows] = total.squeeze(1).reciprocal_()
        stats.sampled[rows] = stats.argmax[rows] if noise is None else noise.sample(probs, start)
        if count:
            top.probs[rows], top.ids[rows] = probs.topk(count, dim=-1)
    return stats


def process(logits: Tensor, softcap: float | None, temperature: float | Tensor) -> None:
    """Caps logits in fp32 and divides them by the temperature, in place."""
    if softcap is not None:
        logits.div_(softcap).tanh_().mul_(softcap)
    logits.div_(temperature)


def top_probabilities(
    values: Tensor, argmax_prob: Tensor, *, softcap: float | None, temperature: float | Tensor
) -> Tensor:
    """Probabilities fp32 [L, K] of the most probable ids, for readers that find these ids in the raw logits.

    Args:
        values: [L, K], their raw logits, the largest one first.
        argmax_prob: [L], the probability of the first one.
    """
    scores = values.float()
    process(scores, softcap, temperature)
    return scores.sub_(scores[:, :1].clone()).exp_().mul_(argmax_prob[:, None])


def _block(vocab_size: int, device: torch.device) -> int:
    """Number of rows in a block."""
    elements = MAX_ELEMENTS
    if device.type == "cpu":
        elements = min(elements, _CACHED_ELEMENTS * torch.get_num_threads())
    return max(1, elements // vocab_size)


def _log_sum_exp(scores: Tensor) -> Tensor:
    """ln Σ exp(s) [R] of scores [R, V], which are overwritten."""
    peak = scores.amax(dim=-1, keepdim=True)
    return scores.sub_(peak).exp_().sum(dim=-1).log_().add_(peak.squeeze(1))


def _entropy(shifted: Tensor, exponentials: Tensor, total: Tensor) -> Tensor:
    """-Σ p ln p = ln Z - Σ e·s / Z in nats [R]; never negative, despite rounding: Z >= 1, and no s is above 0.

    Args:
        shifted: [R, V] scores s minus their largest; overwritten.
        exponentials: [R, V] e = exp(s).
        total: [R, 1] Z, the sum of the exponentials.
    """
    weighted = shifted.mul_(exponentials).sum(dim=-1, keepdim=True)
    return (total.log() - weighted / total).squeeze(1)
