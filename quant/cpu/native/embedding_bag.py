"""Weighted sums of rows of an int8 table as a function of tensors.

Knows the layout of its arguments, which is that of the structure in `embedding_bag.c`; knows nothing about
probabilities. Shape letters: V rows of the table, D width, N sums, K rows in each.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from ...codecs.codec import GROUP, Encoded
from .calls import function_of, run

MIN_PRODUCTS_PER_THREAD = 1 << 20
"""Fewer multiplications take less time than it takes to wake up a thread."""


class _Bags(ctypes.Structure):
    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kept", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("next", ctypes.c_int64),
    )


class NativeEmbeddingBag:
    """`torch.nn.functional.embedding_bag` with mode `sum`, over int8 codes.

    Raises:
        AttributeError: the library lacks the function.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._embedding_bag = function_of(library.embedding_bag, _Bags)

    def __call__(self, table: Encoded, ids: Tensor, weights: Tensor) -> Tensor:
        """Adds up rows of a table, each times its weight, in their order.

        Args:
            table: int8 [V, D], contiguous.
            ids: int64 [N, K], contiguous.
            weights: fp32 [N, K], contiguous.

        Returns:
            fp32 [N, D].

        Raises:
            ValueError: arguments that do not belong together.
        """
        _check(table, ids, weights)
        (count, kept), width = ids.shape, table.codes.shape[1]
        sums = torch.empty(count, width)
        arguments = _Bags(
            table.codes.data_ptr(),
            table.scales.data_ptr(),
            ids.data_ptr(),
            weights.data_ptr(),
            sums.data_ptr(),
            count,
            kept,
            width,
            0,
        )
        threads = 1 + ids.numel() * width // MIN_PRODUCTS_PER_THREAD
        run(self._embedding_bag, arguments, (table, ids, weights, sums), max_threads=threads)
        return sums


def _check(table: Encoded, ids: Tensor, weights: Tensor) -> None:
    """The kernel reads where it is told to."""
    if not all(tensor.is_contiguous() for tensor in (table.codes, table.scales, ids, weights)):
        raise ValueError("codes, scales, ids and weights should be contiguous")
    rows, width = table.codes.shape
    if table.codes.dtype != torch.int8 or table.scales.dtype != torch.bfloat16 or width % GROUP:
        raise ValueError(f"a table of {table.codes.dtype} codes {[rows, width]} should be int8, in groups of {GROUP}")
    if table.scales.shape != (rows, width // GROUP):
        raise ValueError(f"scales {list(table.scales.shape)} do not belong to codes {[rows, width]}")
    if ids.dtype != torch.int64 or weights.dtype != torch.float32 or ids.dim() != 2 or ids.shape != weights.shape:
        raise ValueError(f"ids {list(ids.shape)} and weights {list(weights.shape)} should be int64 and fp32 [N, K]")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < rows:
        raise ValueError(f"ids should be from 0 to {rows - 1}")
