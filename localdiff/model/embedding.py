"""The tied embedding of a model: token lookup, output head and soft embedding over one matrix as it was published.

Swappable: a quantized module with the same methods takes its place.
Shape letters: V vocabulary, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quant.modules.embedding import ChunkedEmbedding


class TiedEmbedding(ChunkedEmbedding):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding."""

    weight: nn.Parameter

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    def rows(self, part: slice) -> Tensor:
        return self.weight[part]

    def lookup(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)
