"""The tied embedding over one matrix: token lookup, output head, soft embedding.

Knows the matrix; knows nothing about caps, temperatures or scaling by the width. The matrix is multiplied in chunks of
its rows, because at full size a decoded copy of it takes 1.5 GB in bf16, and an fp32 copy of the logits 268 MB.
Shape letters: N rows, V vocabulary, C rows of a chunk, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quant.codecs.codec import Codec
from quant.instructions import matmul_dtype
from quant.modules.tensor import QuantTensor


class ChunkedEmbedding(nn.Module, ABC):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding.

    Attributes:
        weight: the matrix.
        chunk: rows of the matrix that are multiplied at a time.
    """

    weight: nn.Parameter | QuantTensor
    chunk = 8192

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Type of the activations that go in and come out."""

    @abstractmethod
    def rows(self, part: slice) -> Tensor:
        """Some rows of the matrix, in `dtype`."""

    @abstractmethod
    def lookup(self, ids: Tensor) -> Tensor:
        """Rows of the table, unscaled: [...] ids to [..., D]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [N, V] (neither capped nor divided) of `hidden` [N, D], both in `dtype`."""
        out = torch.empty(hidden.shape[0], self.weight.shape[0], dtype=self.dtype, device=hidden.device)
        dtype = matmul_dtype(hidden.device, self.dtype)
        hidden = hidden.to(dtype)
        for part in self._chunks():
            out[:, part] = F.linear(hidden, self.rows(part).to(dtype))
        return out

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """The soft embedding: the mean of all rows, weighted by `softmax(logits)`; unscaled.

        Args:
            logits: [N, V], capped and divided by the temperature.
            log_normalizer: [N] fp32, their log-sum-exp.

        Returns:
            [N, D] in `dtype`; probabilities are rounded to that type, the sum over chunks is kept in fp32.
        """
        total = self._zeros(logits)
        for part in self._chunks():
            total += _product(probabilities(logits[:, part], log_normalizer, self.dtype), self.rows(part))
        return total.to(self.dtype)

    def mean(self, probs: Tensor) -> Tensor:
        """What `soft` returns, from the rounded probabilities [N, V] of a step's logits, in `dtype`."""
        total = self._zeros(probs)
        for part in self._chunks():
            total += _product(probs[:, part], self.rows(part))
        return total.to(self.dtype)

    def _zeros(self, distributions: Tensor) -> Tensor:
        """The initial sum [N, D]."""
        shape = distributions.shape[0], self.weight.shape[1]
        return torch.zeros(shape, dtype=torch.float32, device=distributions.device)

    def _chunks(self, size: int | None = None) -> Iterator[slice]:
        rows, size = self.weight.shape[0], size or self.chunk
        return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def probabilities(logits: Tensor, log_normalizer: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(logits [N, V] - log-normalizer [N]) in fp32, rounded to `dtype`."""
    return (logits.float() - log_normalizer[:, None]).exp_().to(dtype)


def _product(probs: Tensor, rows: Tensor) -> Tensor:
    """Probabilities [N, C] times a chunk of rows [C, D]."""
    dtype = matmul_dtype(probs.device, probs.dtype)
    return probs.to(dtype) @ rows.to(dtype)


class TiedEmbedding(ChunkedEmbedding):
    """The embedding over a matrix as it was published, or decoded; empty until it is loaded."""

    weight: nn.Parameter

    def __init__(self, vocab_size: int, hidden_size: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size, dtype=dtype))

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    def rows(self, part: slice) -> Tensor:
        return self.weight[part]

    def lookup(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class QuantEmbedding(ChunkedEmbedding):
    """The embedding over a matrix stored by a codec.

    Args:
        codec: format of the matrix.
        vocab_size, hidden_size: V, D.
        dtype: type of the activations that go in and come out.
    """

    weight: QuantTensor
    chunk = 4096  # 46 MB in fp32 at the released width

    def __init__(self, codec: Codec, vocab_size: int, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = QuantTensor(codec, (vocab_size, hidden_size))
        self._dtype = dtype

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def rows(self, part: slice) -> Tensor:
        return self.weight.decode(self.dtype, part)

    def lookup(self, ids: Tensor) -> Tensor:
        return self.weight.decode(self.dtype, ids)
