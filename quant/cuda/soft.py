"""The soft embedding over probable ids: Σ p·e over those above a threshold, and the matrix's mean row for the rest.

The probability that is left out of a row, its tail, makes an error of at most the tail times the largest distance of an
embedding from the mean row. The tail is returned with every result, as is whether a row had more probable ids than
there is room for; the caller decides whether to use the row. Tails on a small vocabulary say nothing about those on
262,144 ids.
Shape letters: L rows, V vocabulary, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.cuda.launch_arguments import on_device_of, power_of_two
from quant.modules.embedding import QuantEmbedding

THRESHOLD = 1e-4
CAPACITY = 512
"""Probable ids that are stored per row: no more than this many can have a probability above 1/512."""
BLOCK = 4096
ENTRIES, COLUMNS = 16, 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Soft:
    """A soft embedding over probable ids.

    Attributes:
        embedding: [L, D], unscaled, in the embedding's type.
        tail: fp32 [L], the probability for which the mean row stands in.
        overflow: bool [L], rows with more probable ids than CAPACITY; their embedding must not be used.
    """

    embedding: Tensor
    tail: Tensor
    overflow: Tensor


class SparseSoft:
    """The sparse form of an int8 embedding's `soft`.

    Args:
        embedding: holds the matrix, in int8; its mean row is computed here, once.
        threshold: probability above which an id counts.

    Attributes:
        threshold: the same.
        mean_row: fp32 [D], of the matrix.
    """

    def __init__(self, embedding: QuantEmbedding, threshold: float = THRESHOLD) -> None:
        self._weight, self._dtype, self.threshold = embedding.weight, embedding.dtype, threshold
        rows, width = embedding.weight.shape
        total = torch.zeros(width, dtype=torch.float32, device=embedding.weight.codes.device)
        for start in range(0, rows, BLOCK):
            total += embedding.weight.decode(torch.float32, slice(start, min(start + BLOCK, rows))).sum(dim=0)
        self.mean_row = total / rows

    def __call__(self, logits: Tensor, log_normalizer: Tensor, *, block: int = BLOCK) -> Soft:
        """The soft embedding under `softmax(logits)`, unscaled.

        Args:
            logits: [L, V], capped and divided by the temperature; log_normalizer: [L] fp32, their log-sum-exp.
            block: columns per program, a power of 2.
        """
        from quant.cuda.soft_kernels import collect_kernel, count_kernel, mean_kernel

        length, vocab_size = logits.shape
        logits = logits if logits.stride(1) == 1 else logits.contiguous()
        log_normalizer = log_normalizer.contiguous()
        width, blocks = self._weight.shape[1], -(-vocab_size // block)
        counts = logits.new_empty(length, blocks, dtype=torch.int32)
        kept_sums = logits.new_empty(length, blocks, dtype=torch.float32)
        totals, tails = counts.new_empty(length), kept_sums.new_empty(length)
        ids = logits.new_empty(length, CAPACITY, dtype=torch.int32)
        probabilities = logits.new_empty(length, CAPACITY, dtype=torch.float32)
        shape = (self.threshold, logits.stride(0), vocab_size, blocks)
        with on_device_of(logits):
            count_kernel[(length, blocks)](
                logits, log_normalizer, counts, kept_sums, *shape, BLOCK=block, num_warps=8, enable_fp_fusion=True
            )
            collect_kernel[(length, blocks)](
                logits,
                log_normalizer,
                counts,
                kept_sums,
                ids,
                probabilities,
                totals,
                tails,
                *shape,
                BLOCK=block,
                BLOCKS=power_of_two(blocks),
                CAPACITY=CAPACITY,
                num_warps=8,
                enable_fp_fusion=True,
            )
            soft = torch.empty(length, width, dtype=self._dtype, device=logits.device)
            mean_kernel[(length, -(-width // COLUMNS))](
                ids,
                probabilities,
                totals,
                tails,
                self._weight.codes,
                self._weight.scales,
                self.mean_row,
                soft,
                width,
                CAPACITY=CAPACITY,
                ENTRIES=ENTRIES,
                COLUMNS=COLUMNS,
                num_warps=4,
                enable_fp_fusion=False,  # when fused, lanes' copies of a sum differ in the last bits, and any is stored
            )
        return Soft(embedding=soft, tail=tails, overflow=totals > CAPACITY)
