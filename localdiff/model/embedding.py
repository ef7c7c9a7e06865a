"""The tied embedding: token lookup, output head and soft embedding over one matrix.

Swappable: a quantized module with the same three methods takes its place. Works in column chunks, because at full size
an fp32 copy of the logits is 268 MB and a decoded copy of the matrix 1.5 GB.
Shape letters: N rows, V vocabulary, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_CHUNK = 8192


class TiedEmbedding(nn.Module):
    """One matrix [V, D] that is embedding table, output head and codebook of the soft embedding."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the input and output activations."""
        return self.weight.dtype

    def lookup(self, ids: Tensor) -> Tensor:
        """Rows of the table, unscaled: [...] ids to [..., D]."""
        return F.embedding(ids, self.weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [N, V] (neither capped nor divided) of `hidden` [N, D], in the weights' dtype."""
        out = torch.empty(hidden.shape[0], self.weight.shape[0], dtype=hidden.dtype, device=hidden.device)
        for start in range(0, self.weight.shape[0], _CHUNK):
            chunk = self.weight[start : start + _CHUNK]
            out[:, start : start + _CHUNK] = F.linear(hidden, chunk)
        return out

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """Mean embedding under `softmax(logits)`, unscaled.

        Args:
            logits: [N, V], capped and divided by the temperature.
            log_normalizer: [N] fp32, their log-sum-exp.

        Returns:
            [N, D] in the weights' dtype; probabilities are rounded to it, the sum is kept in fp32.
        """
        total = torch.zeros(logits.shape[0], self.weight.shape[1], dtype=torch.float32, device=logits.device)
        for start in range(0, self.weight.shape[0], _CHUNK):
            chunk = self.weight[start : start + _CHUNK]
            probs = (logits[:, start : start + _CHUNK].float() - log_normalizer[:, None]).exp_()
            total += probs.to(chunk.dtype) @ chunk
        return total.to(self.weight.dtype)
