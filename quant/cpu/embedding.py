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

from ..modules.embedding import ChunkedEmbedding, QuantEmbedding

TAIL = 2.0**-10
"""Probability that a row may lose: a quarter of the step between two bf16 numbers next to 1."""
KEPT = (64, 1024)
"""Numbers of most probable ids that are tried before a row uses all ids."""


class Bf16Embedding(ChunkedEmbedding):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding."""

    weight: nn.Parameter
    dtype = torch.bfloat16

    def __init__(self, embedding: QuantEmbedding) -> None:
        super().__init__()
        stored = embedding.weight
        self.weight = nn.Parameter(torch.empty(stored.shape, dtype=self.dtype), requires_grad=False)
        for part in self._chunks():
            self.weight[part] = stored.decode(self.dtype, part)
        self.path = "decoded to bf16 once, multiplied through torch"
        self.soft_path = f"most probable ids, up to 1/{round(1 / TAIL)} of a row left out"

    def rows(self, part: slice) -> Tensor:
        return self.weight[part]

    def lookup(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """See `ChunkedEmbedding.soft`; a row may lose up to `TAIL` of its probability."""
        out = torch.empty(logits.shape[0], self.weight.shape[1], dtype=self.dtype)
        rows = torch.arange(len(logits))
        for kept in KEPT:
            if not len(rows) or kept >= logits.shape[1]:
                break
            rows = self._sparse(logits, log_normalizer, rows, kept, out)
        if len(rows):
            out[rows] = super().soft(_rows(logits, rows), log_normalizer[rows])
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


def _rows(logits: Tensor, rows: Tensor) -> Tensor:
    """Some of the rows; all of them without a copy."""
    return logits if len(rows) == len(logits) else logits[rows]
