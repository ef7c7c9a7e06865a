"""The tied embedding over one quantized matrix: token lookup, output head, soft embedding.

Knows the matrix; knows nothing about caps, temperatures or scaling by the width. The matrix is decoded in chunks of its
rows, because whole it would take 1.5 GB in bf16.
Shape letters: N rows, V vocabulary, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..codec import Codec
from .tensor import QuantTensor

CHUNK = 4096
"""Rows of the matrix that are decoded at a time: 46 MB in fp32 at the released width."""


class QuantEmbedding(nn.Module):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding.

    Args:
        codec: format of the matrix.
        vocab_size, hidden_size: V, D.
        dtype: type of the activations that go in and come out.
    """

    def __init__(self, codec: Codec, vocab_size: int, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = QuantTensor(codec, (vocab_size, hidden_size))
        self.dtype = dtype

    def lookup(self, ids: Tensor) -> Tensor:
        """Rows of the table, unscaled: [...] ids to [..., D]."""
        return self.weight.decode(self.dtype, ids)

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [N, V] (neither capped nor divided) of `hidden` [N, D], in its type."""
        out = torch.empty(hidden.shape[0], self.weight.shape[0], dtype=hidden.dtype, device=hidden.device)
        for part in self._chunks():
            out[:, part] = F.linear(hidden, self.weight.decode(hidden.dtype, part))
        return out

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """Mean embedding under `softmax(logits)`, unscaled.

        Args:
            logits: [N, V], capped and divided by the temperature.
            log_normalizer: [N] fp32, their log-sum-exp.

        Returns:
            [N, D] in `dtype`; probabilities are rounded to that type, the sum is kept in fp32.
        """
        total = torch.zeros(logits.shape[0], self.weight.shape[1], dtype=torch.float32, device=logits.device)
        for part in self._chunks():
            probs = (logits[:, part].float() - log_normalizer[:, None]).exp_()
            total += probs.to(self.dtype) @ self.weight.decode(self.dtype, part)
        return total.to(self.dtype)

    def _chunks(self) -> list[slice]:
        rows = self.weight.shape[0]
        return [slice(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]
