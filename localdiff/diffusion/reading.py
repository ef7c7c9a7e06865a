"""Reading the logits of a canvas: soft cap, temperature, and every statistic a denoise step needs, in one pass.

Works in blocks of rows, so that nothing of the size canvas times vocabulary exists in fp32: at full size that is
268 MB a copy, and the plain way holds several.
Shape letters: L canvas, V vocabulary, R rows of a block, K alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .noise import Noise

# A block of rows stays under 8 M elements: 32 rows of the full vocabulary, 34 MB in fp32.
_MAX_ELEMENTS = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What the logits of one denoise step say, at this step's temperature.

    All tensors are on the logits' device, and [L] but for the last two.

    Attributes:
        entropy: fp32, in nats; computed once and used for acceptance, for stopping and for the event.
        argmax: most probable id.
        argmax_prob: fp32, its probability.
        sampled: id drawn from the distribution.
        log_normalizer: fp32, log-sum-exp of the processed logits as they are stored.
        top_ids: [L, K], the most probable ids, the first one first.
        top_probs: [L, K] fp32, their probabilities.
    """

    entropy: Tensor
    argmax: Tensor
    argmax_prob: Tensor
    sampled: Tensor
    log_normalizer: Tensor
    top_ids: Tensor
    top_probs: Tensor


def read_logits(
    logits: Tensor, *, softcap: float | None, temperature: float, noise: Noise | None, alternatives: int = 0
) -> Reading:
    """Reads raw logits [L, V] and overwrites them by the processed ones: capped, divided by `temperature`, rounded.

    The processed logits are what self-conditioning continues from; they keep the type of `logits`, as in the reference,
    while the statistics are taken in fp32 before that rounding.

    Args:
        noise: where samples come from; None takes the argmax in their place.
        alternatives: K, how many of the most probable ids to report.
    """
    length, vocab_size = logits.shape
    top_k = min(alternatives, vocab_size)
    reading = Reading(
        entropy=logits.new_empty(length, dtype=torch.float32),
        argmax=logits.new_empty(length, dtype=torch.int64),
        argmax_prob=logits.new_empty(length, dtype=torch.float32),
        sampled=logits.new_empty(length, dtype=torch.int64),
        log_normalizer=logits.new_empty(length, dtype=torch.float32),
        top_ids=logits.new_empty(length, top_k, dtype=torch.int64),
        top_probs=logits.new_empty(length, top_k, dtype=torch.float32),
    )
    block = max(1, _MAX_ELEMENTS // vocab_size)
    if noise is not None:
        noise.start_step(length)
        block = length if noise.whole_canvas else block
    for start in range(0, length, block):
        rows = slice(start, start + block)
        scores = logits[rows].float()
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores = scores / temperature
        logits[rows] = scores
        reading.log_normalizer[rows] = logits[rows].float().logsumexp(dim=-1)
        probs = scores.softmax(dim=-1)
        reading.entropy[rows] = _entropy(scores, probs)
        reading.argmax[rows] = scores.argmax(dim=-1)
        reading.argmax_prob[rows] = probs.amax(dim=-1)
        reading.sampled[rows] = reading.argmax[rows] if noise is None else noise.sample(probs, start)
        if top_k:
            reading.top_probs[rows], reading.top_ids[rows] = probs.topk(top_k, dim=-1)
    return reading


def _entropy(scores: Tensor, probs: Tensor) -> Tensor:
    """-Σ p ln p in nats [R], from scores and their softmax [R, V]; never below zero, which rounding could make it."""
    log_probs = scores - scores.logsumexp(dim=-1, keepdim=True)
    return (log_probs * probs).sum(dim=-1).clamp_(max=0.0).abs_()  # not negated: a certain position has 0.0, not -0.0
