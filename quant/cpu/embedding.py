"""The tied embedding over one quantized matrix, optimized for the CPU.

The matrix is decoded once to bf16: it is multiplied whole in every step, and decoding it takes as long as multiplying
it. Self-conditioning leaves out a row's smallest probabilities, as long as their sum is below `TAIL`; other rows use
all of them.
Shape letters: N rows, V vocabulary, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..modules.embedding import QuantEmbedding

CHUNK = 8192
TAIL = 2.0**-10
"""Probability that a row may lose: a quarter of the step between two bf16 numbers next to 1."""
KEPT = (64, 1024)
"""How many of the most probable ids are tried before a row takes all of them."""


class Bf16Embedding(nn.Module):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding."""

    def __init__(self, embedding: QuantEmbedding) -> None:
        super().__init__()
        stored = embedding.weight
        self.weight = nn.Parameter(torch.empty(stored.shape, dtype=torch.bfloat16), requires_grad=False)
        for part in self._chunks():
            self.weight[part] = stored.decode(torch.bfloat16, part)
        self.dtype = embedding.dtype
        self.path = "decoded to bf16 once, multiplied through torch"
        self.soft_path = f"most probable ids, up to 1/{round(1 / TAIL)} of a row left out"

    def lookup(self, ids: Tensor) -> Tensor:
        """Rows of the table, unscaled: [...] ids to [..., D]."""
        return F.embedding(ids, self.weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [N, V] (neither capped nor divided) of `hidden` [N, D], in its type."""
        out = torch.empty(hidden.shape[0], self.weight.shape[0], dtype=hidden.dtype)
        for part in self._chunks():
            out[:, part] = F.linear(hidden, self.weight[part])
        return out

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """Mean embedding under `softmax(logits)`, unscaled.

        Args:
            logits: [N, V], capped and divided by the temperature.
            log_normalizer: [N] fp32, their log-sum-exp.

        Returns:
            [N, D] in `dtype`; probabilities are rounded to that type, the sum is kept in fp32.
        """
        out = torch.empty(logits.shape[0], self.weight.shape[1], dtype=self.dtype)
        rows = torch.arange(len(logits))
        for kept in KEPT:
            if not len(rows) or kept >= logits.shape[1]:
                break
            rows = self._sparse(logits, log_normalizer, rows, kept, out)
        if len(rows):
            out[rows] = self._dense(_rows(logits, rows), log_normalizer[rows])
        return out

    def _sparse(self, logits: Tensor, log_normalizer: Tensor, rows: Tensor, kept: int, out: Tensor) -> Tensor:
        """Fills the rows for which `kept` ids suffice, and returns the others."""
        values, ids = _rows(logits, rows).topk(kept, dim=-1, sorted=False)
        probs = (values.float() - log_normalizer[rows, None]).exp_()
        enough = 1 - probs.sum(dim=-1) < TAIL
        done = rows[enough]
        if len(done):
            weights = probs[enough].to(self.dtype)
            out[done] = F.embedding_bag(ids[enough], self.weight, mode="sum", per_sample_weights=weights)
        return rows[~enough]

    def _dense(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        total = torch.zeros(logits.shape[0], self.weight.shape[1])
        for part in self._chunks():
            probs = (logits[:, part].float() - log_normalizer[:, None]).exp_()
            total += probs.to(self.dtype) @ self.weight[part]
        return total.to(self.dtype)

    def _chunks(self) -> list[slice]:
        rows = self.weight.shape[0]
        return [slice(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]


def _rows(logits: Tensor, rows: Tensor) -> Tensor:
    """Some of the rows; all of them without a copy."""
    return logits if len(rows) == len(logits) else logits[rows]
