"""The tied embedding over one quantized matrix, optimized for the CPU.

Two implementations: from the stored int8 codes, with a kernel, and over the matrix decoded once to bf16, because it is
multiplied whole in every step, and decoding it takes as long as multiplying it. In both, self-conditioning leaves out a
row's smallest probabilities, as long as their sum is below `TAIL`; other rows use all of them.
Shape letters: N rows, M of them, K ids of each, V vocabulary, D width.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..modules.embedding import ChunkedEmbedding, QuantEmbedding
from ..modules.tensor import QuantTensor
from .native.library import NativeLibrary
from .native.products import contiguous, path_of, stack_of_one

TAIL = 2.0**-10
"""Probability that a row may lose: a quarter of the step between two bf16 numbers next to 1."""
KEPT = (64, 1024)
"""Numbers of most probable ids that are tried before a row uses all ids."""


class CpuEmbedding(ChunkedEmbedding):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding."""

    soft_path = f"most probable ids, up to 1/{round(1 / TAIL)} of a row left out"

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

    @abstractmethod
    def weighted_sum(self, ids: Tensor, weights: Tensor) -> Tensor:
        """Rows of the matrix, each times its weight: [M, K] ids and fp32 weights to [M, D]."""

    def _sparse(self, logits: Tensor, log_normalizer: Tensor, rows: Tensor, kept: int, out: Tensor) -> Tensor:
        """Fills the rows for which `kept` ids suffice, and returns the others."""
        values, ids = _rows(logits, rows).topk(kept, dim=-1, sorted=False)
        probs = (values.float() - log_normalizer[rows, None]).exp_()
        enough = 1 - probs.sum(dim=-1) < TAIL
        done = rows[enough]
        if len(done):
            out[done] = self.weighted_sum(ids[enough], probs[enough]).to(self.dtype)
        return rows[~enough]


class NativeEmbedding(CpuEmbedding):
    """The embedding from its stored int8 codes; the head rounds activations to int8, as `NativeLinear` does."""

    weight: QuantTensor
    chunk = 4096  # 23 MB in bf16 at the released width, which `allocator` keeps in the process

    def __init__(self, embedding: QuantEmbedding, library: NativeLibrary) -> None:
        super().__init__()
        self.weight = embedding.weight
        self._dtype = embedding.dtype
        self._stored = contiguous(embedding.weight.encoded)
        self._library = library
        self.path = path_of(embedding.weight, library)

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def rows(self, part: slice) -> Tensor:
        return self.weight.decode(self.dtype, part)

    def lookup(self, ids: Tensor) -> Tensor:
        return self.weight.decode(self.dtype, ids)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._library.multiply(
            self._library.rows(hidden, nf4=False), stack_of_one(self._stored), None, [len(hidden)]
        )

    def weighted_sum(self, ids: Tensor, weights: Tensor) -> Tensor:
        return self._library.embedding_bag(self._stored, ids, weights)


class Bf16Embedding(CpuEmbedding):
    """The embedding, decoded to bf16."""

    weight: nn.Parameter
    dtype = torch.bfloat16

    def __init__(self, embedding: QuantEmbedding) -> None:
        super().__init__()
        stored = embedding.weight
        self.weight = nn.Parameter(torch.empty(stored.shape, dtype=self.dtype), requires_grad=False)
        for part in self._chunks():
            self.weight[part] = stored.decode(self.dtype, part)
        self.path = "decoded to bf16 once, multiplied through torch"

    def rows(self, part: slice) -> Tensor:
        return self.weight[part]

    def lookup(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)

    def weighted_sum(self, ids: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(ids, self.weight, mode="sum", per_sample_weights=weights.to(self.dtype))


def _rows(logits: Tensor, rows: Tensor) -> Tensor:
    """Some of the rows; all of them without a copy."""
    return logits if len(rows) == len(logits) else logits[rows]
