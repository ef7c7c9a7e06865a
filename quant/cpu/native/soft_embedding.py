"""Soft embeddings over an int8 table as a function of tensors.

Knows the layouts of its arguments, which are those of the structures in `soft_embedding.c`.
Shape letters: N rows of logits, V vocabulary, D width, P ids of all nuclei together.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded
from quant.cpu.native.calls import DTYPES, addresses, function_of, integers, number_of, pointers, run
from quant.cpu.parallel import thread_count

MIN_PRODUCTS_PER_THREAD = 1 << 20
"""Fewer multiplications take less time than it takes to wake up a thread."""
PANELS_PER_THREAD = 3
"""Fewer would leave threads without work while others finish."""


class _Nuclei(ctypes.Structure):
    _fields_ = (
        *pointers("logits", "log_normalizer", "least", "sizes", "starts", "ids", "log_probs"),
        *integers("count", "vocabulary", "is_bf16"),
        ("tail", ctypes.c_double),
        *integers("next"),
    )


class _Sums(ctypes.Structure):
    _fields_ = (
        *pointers("codes", "scales", "starts", "ids", "weights", "sums"),
        *integers("count", "width", "part", "next"),
    )


class NativeSoftEmbedding:
    """Mean rows of an int8 table under `softmax(logits)`, over the nucleus of each row.

    Raises:
        AttributeError: the library lacks a function.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._measure = function_of(library.measure_nuclei, _Nuclei)
        self._collect = function_of(library.collect_nuclei, _Nuclei)
        self._add_rows = function_of(library.add_rows, _Sums)
        self._panel, self._max_rows = number_of(library.soft_panel), number_of(library.soft_rows)

    def __call__(
        self, table: Encoded, logits: Tensor, log_normalizer: Tensor, *, tail: float, max_ids: int
    ) -> tuple[Tensor, Tensor]:
        """Adds up rows of the table, each times its probability.

        Args:
            table: int8 [V, D], contiguous.
            logits: [N, V] in bf16 or fp32, contiguous.
            log_normalizer: [N] fp32, their log-sum-exp.
            tail: probability that a row may lose.
            max_ids: maximum number of ids that a row adds up.

        Returns:
            Sums, fp32 [N, D], and the sizes [N] of the nuclei. Where a size is above `max_ids`, the sums are 0.

        Raises:
            ValueError: the arguments do not fit together.
        """
        _check(table, logits, log_normalizer)
        sizes, starts, ids, probs = self._nuclei(logits, log_normalizer, tail, max_ids)
        return self._sums(table, starts, ids, probs), sizes

    def _nuclei(
        self, logits: Tensor, log_normalizer: Tensor, tail: float, max_ids: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The most probable ids of rows, without the least probable, whose probabilities sum to less than the tail.

        Of fp32 logits only the upper 16 bits are compared, so a few more ids than necessary stay.

        Returns:
            The number of ids of each row, int64 [N]; where each row begins in the next two, int64 [N + 1], rows with
            more than `max_ids` being empty; ids, int32 [P], ascending within a row; their probabilities, fp32 [P].
        """
        count, vocabulary = logits.shape
        settings = (count, vocabulary, logits.dtype == torch.bfloat16, tail)
        log_normalizer = log_normalizer.float().contiguous()
        least, sizes = torch.empty(count, dtype=torch.uint16), torch.empty(count, dtype=torch.int64)
        tensors: tuple[Tensor, ...] = (logits, log_normalizer, least, sizes)
        max_threads = 1 + logits.numel() // MIN_PRODUCTS_PER_THREAD
        run(self._measure, _Nuclei(*addresses((*tensors, None, None, None)), *settings), tensors, max_threads)
        lengths = torch.where(sizes > max_ids, 0, sizes)
        starts = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
        ids, log_probs = (torch.empty(int(starts[-1]), dtype=dtype) for dtype in (torch.int32, torch.float32))
        tensors += (starts, ids, log_probs)
        run(self._collect, _Nuclei(*addresses(tensors), *settings), tensors, max_threads)
        return sizes, starts, ids, log_probs.exp_()

    def _sums(self, table: Encoded, starts: Tensor, ids: Tensor, probs: Tensor) -> Tensor:
        """The sums [N, D] in fp32."""
        count, width = len(starts) - 1, table.codes.shape[1]
        sums = torch.empty(count, width, dtype=torch.float32)
        tensors = (table.codes, table.scales, starts, ids, probs, sums)
        max_threads = 1 + len(ids) * width // MIN_PRODUCTS_PER_THREAD
        part = self._part(count, width, thread_count(max_threads))
        run(self._add_rows, _Sums(*addresses(tensors), count, width, part), tensors, max_threads)
        return sums

    def _part(self, count: int, width: int, threads: int) -> int:
        """Rows for which a panel is computed at a time: all, unless that makes too few panels for the threads."""
        parts = max(1, PANELS_PER_THREAD * threads * self._panel // width)
        return max(1, min(-(-count // parts), self._max_rows))


def _check(table: Encoded, logits: Tensor, log_normalizer: Tensor) -> None:
    """Refuses arguments that do not fit together: the kernel reads wherever they point."""
    if not all(tensor.is_contiguous() for tensor in (table.codes, table.scales, logits)):
        raise ValueError("codes, scales and logits should be contiguous")
    rows, width = table.codes.shape
    if table.codes.dtype != torch.int8 or table.scales.dtype != torch.bfloat16 or not width or width % GROUP:
        raise ValueError(f"a table of {table.codes.dtype} codes {[rows, width]} should be int8, in groups of {GROUP}")
    if table.scales.shape != (rows, width // GROUP):
        raise ValueError(f"scales {list(table.scales.shape)} do not belong to codes {[rows, width]}")
    if logits.dtype not in DTYPES or logits.shape[1:] != (rows,):
        raise ValueError(f"logits {list(logits.shape)} of {logits.dtype} should be bf16 or fp32 [N, {rows}]")
    if log_normalizer.shape != logits.shape[:1]:
        raise ValueError(f"log-sum-exp {list(log_normalizer.shape)} do not belong to logits {list(logits.shape)}")
