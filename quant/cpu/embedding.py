"""The tied embedding over one quantized matrix, optimized for the CPU.

Two implementations: with a kernel from the stored int8 codes, and over the matrix decoded once to bf16, since each step
multiplies all of it and decoding takes as long as multiplying. In both, self-conditioning leaves out a row's smallest
probabilities, as long as their sum is below `TAIL`; rows that still need many ids use all of them.
Shape letters: N rows, M of them, K ids of each, V vocabulary, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quant.cpu.native.library import NativeLibrary
from quant.modules.embedding import QuantEmbedding, TiedEmbedding

TAIL = 2.0**-10
"""Probability that a row may lose: a quarter of the step between two bf16 numbers next to 1."""
LARGE = 1 / 8
"""Share of all ids beyond which the native embedding uses all of them, in a matmul."""
KEPT = (64, 1024)
"""Numbers of most probable ids that the bf16 embedding tries before a row uses all ids."""
_SOFT_PATH = f"most probable ids, up to 1/{round(1 / TAIL)} of a row left out"


class NativeEmbedding(QuantEmbedding):
    """An int8 embedding that shares the plain one's matrix; the head rounds activations to int8, as `NativeLinear`."""

    soft_path = _SOFT_PATH

    def __init__(self, embedding: QuantEmbedding, library: NativeLibrary) -> None:
        nn.Module.__init__(self)
        self.weight, self._dtype = embedding.weight, embedding.dtype
        self._stored = embedding.weight.encoded.contiguous()
        self._library = library
        self.path = library.path(embedding.weight.codec.name)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._library.multiply(hidden, self._stored[None], None, [len(hidden)])

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """See `ChunkedEmbedding.soft`; a row may lose up to `TAIL` of its probability."""
        max_ids = int(LARGE * logits.shape[1])
        sums, sizes = self._library.soft_embedding(
            self._stored, logits.contiguous(), log_normalizer, tail=TAIL, max_ids=max_ids
        )
        out = sums.to(self.dtype)
        large = (sizes > max_ids).nonzero().squeeze(1)
        if len(large):
            out[large] = super().soft(_rows(logits, large), log_normalizer[large])
        return out


class Bf16Embedding(TiedEmbedding):
    """The embedding, decoded to bf16."""

    soft_path = _SOFT_PATH

    def __init__(self, embedding: QuantEmbedding) -> None:
        stored = embedding.weight
        vocab_size, hidden_size = stored.shape
        super().__init__(vocab_size, hidden_size, torch.bfloat16)
        self.requires_grad_(False)
        for part in self._chunks():
            self.weight[part] = stored.decode(self.dtype, part)
        self.path = "decoded to bf16 once, multiplied through torch"

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """See `ChunkedEmbedding.soft`; a row may lose up to `TAIL` of its probability."""
        out = torch.empty(logits.shape[0], self.weight.shape[1], dtype=self.dtype)
        rows = torch.arange(len(logits))
        for kept in KEPT:
            if not len(rows) or kept >= logits.shape[1]:
                break
            rows = self._sum_most_probable(logits, log_normalizer, rows, kept, out)
        if len(rows):
            out[rows] = super().soft(_rows(logits, rows), log_normalizer[rows])
        return out

    def _sum_most_probable(
        self, logits: Tensor, log_normalizer: Tensor, rows: Tensor, kept: int, out: Tensor
    ) -> Tensor:
        """Fills the rows [M] for which `kept` ids suffice, and returns the others."""
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
