"""An int8 weight with one scale per row, in the layout that oneDNN multiplies fastest.

Converted once from a weight that is stored in groups. Knows one matrix; knows nothing about where its rows come from.
Shape letters: R rows of activations, out, in.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache, partial
from math import prod

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Codec, Encoded
from quant.cpu.parallel import parallel_for, thread_count
from quant.cpu.rows import MAX_CODE, Int8Rows, round_rows
from quant.instructions import has_amx
from quant.modules.tensor import QuantTensor

PATH = "int8 by rows, oneDNN"
"""How products are computed, in words."""

_CHECKED = 128
_TIMED = (64, 256)
_RUNS = 5
_MAX_SLOWDOWN = 20
"""Maximum time of an int8 product relative to fp32: it is below 1 with int8 instructions and hundreds without."""
_SHIFT = 128
_ELEMENTS = 1 << 19
"""Elements converted at a time: few enough for a core's cache, and enough that threads seldom contend."""


def requantized(codec: Codec, encoded: Encoded) -> Int8Rows:
    """A stored weight `[out, in]` as int8 by rows, without residuals.

    Converts a few rows at a time, which stay in a core's cache: the whole matrix at once takes four times as long.
    """
    out, width = len(encoded.scales), encoded.scales.shape[-1] * GROUP
    codes, scales = torch.empty(out, width, dtype=torch.int8), torch.empty(out, 1, dtype=torch.float32)
    step = max(1, _ELEMENTS // width)

    def convert(number: int) -> None:
        part = slice(number * step, (number + 1) * step)
        codes[part], scales[part], _ = round_rows(codec.decode(encoded[part]))

    parallel_for([convert] * thread_count(), range(-(-out // step)))
    return Int8Rows(codes, scales, torch.empty(0, dtype=torch.int64), None)


class PackedWeight:
    """A stored weight `[out, in]` by rows, in oneDNN's layout, for products with int8 activations.

    Attributes:
        shape: `(out, in)`.
    """

    def __init__(self, codec: Codec, encoded: Encoded) -> None:
        rows = requantized(codec, encoded)
        self.shape = rows.codes.shape
        self._packed = torch.ops.onednn.qlinear_prepack(rows.codes, None)
        self._scales = rows.scales.squeeze(1)
        self._zeros = torch.zeros(len(rows.scales), dtype=torch.int32)

    def times(self, x: Int8Rows, dtype: torch.dtype) -> Tensor:
        """`x @ weight.T`, [R, out] in `dtype`; integer sums are exact."""
        y = self._product(x)
        if x.residual is not None:
            y.index_add_(0, x.residual_rows, self._product(x.residual))
        return y.to(dtype)

    def _product(self, x: Int8Rows) -> Tensor:
        return _multiplied(x.codes, self._packed, self._scales, self._zeros).mul_(x.scales)


def _multiplied(codes: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Codes int8 [R, in] times a packed weight [out, in], fp32 [R, out]: integer sums times the weight's scales.

    AMX tiles multiply signed numbers. All other int8 instructions need unsigned numbers on one side, and without AMX
    oneDNN has only its reference code for two signed ones, which is thousands of times slower: the codes are shifted by
    128 and passed with that zero point, which changes no sum.
    """
    zero = 0
    if not has_amx():
        codes, zero = codes.view(torch.uint8).bitwise_xor(_SHIFT), _SHIFT
    y: Tensor = torch.ops.onednn.qlinear_pointwise(
        codes, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return y


def row_bytes(tensor: QuantTensor) -> int:
    """Bytes of a tensor `[…, out, in]` as int8 with one scale per row."""
    return prod(tensor.shape) + torch.float32.itemsize * prod(tensor.shape[:-1])


@cache
def has_int8_matmul() -> bool:
    """Whether this machine's int8 matmul exists, is exact with the largest codes, and is not reference code.

    Without instructions for it, sums of two products overflow 16 bits, or the product is computed element by element.
    """
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    largest = torch.full((2, _CHECKED), MAX_CODE, dtype=torch.int8)
    largest[1] = -MAX_CODE
    try:
        product = _trial(largest)()
    except RuntimeError:
        return False
    return torch.equal(product, largest.float() @ largest.float().T) and not is_reference_code()


def is_reference_code() -> bool:
    """Whether int8 products take far longer than fp32 ones.

    Measured in one thread, as CPU time: on a busy machine, several threads that wait for each other have been seen to
    take twenty times as long, and a model would then compute differently from run to run.
    """
    codes = torch.ones(_TIMED, dtype=torch.int8)
    floats = codes.float()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _min_seconds(_trial(codes)) > _MAX_SLOWDOWN * _min_seconds(lambda: floats @ floats.T)
    finally:
        torch.set_num_threads(threads)


def _trial(codes: Tensor) -> Callable[[], Tensor]:
    """A function that multiplies codes [R, in] by themselves, transposed."""
    packed = torch.ops.onednn.qlinear_prepack(codes, None)
    scales, zeros = torch.ones(len(codes), dtype=torch.float32), torch.zeros(len(codes), dtype=torch.int32)
    return partial(_multiplied, codes, packed, scales, zeros)


def _min_seconds(work: Callable[[], object]) -> float:
    clock = time.perf_counter if sys.platform == "win32" else time.thread_time  # its ticks are too long on Windows
    seconds = []
    for _ in range(_RUNS):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)
