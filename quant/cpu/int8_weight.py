"""An int8 weight with one scale per row, in the layout that oneDNN multiplies fastest.

Converted once from a weight that is stored in groups. Knows one matrix; knows nothing about where its rows come from.
Shape letters: R rows of activations, out, in.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import prod

import torch
from torch import Tensor

from ..codecs.codec import GROUP, Codec, Encoded
from ..modules.tensor import QuantTensor
from .rows import LARGEST, Int8Rows
from .sharing import MOST, share_out

_CHECKED = 128
_TIMED = (64, 256)
_RUNS = 5
_SLOW = 20
"""Most time of an int8 product, in units of the fp32 one: with int8 instructions it is below 1; without, hundreds."""
_SHIFT = 128
_ELEMENTS = 1 << 19
"""Elements converted at a time: few enough for a core's cache, and enough that threads seldom contend."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowWeight:
    """An int8 weight `[out, in]` with one scale per row: codes I8, scales fp32 `[out]`."""

    codes: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> RowWeight:
        """The nearest such weight to one in fp32."""
        scales = weight.abs().amax(dim=-1) / LARGEST
        inverse = torch.where(scales > 0, 1 / scales, 0.0)
        return cls(codes=torch.mul(weight, inverse[:, None]).round_().to(torch.int8), scales=scales)

    def decode(self) -> Tensor:
        """The weight in fp32."""
        return self.codes.float() * self.scales[:, None]


def requantized(codec: Codec, encoded: Encoded) -> RowWeight:
    """A stored weight `[out, in]` by rows.

    A few rows at a time, which stay in a core's cache: the whole matrix at once takes four times as long.
    """
    out, width = len(encoded.scales), encoded.scales.shape[-1] * GROUP
    whole = RowWeight(codes=torch.empty(out, width, dtype=torch.int8), scales=torch.empty(out))
    step = max(1, _ELEMENTS // width)

    def convert(number: int) -> None:
        part = slice(number * step, (number + 1) * step)
        rows = RowWeight.of(codec.decode(encoded[part], torch.float32))
        whole.codes[part], whole.scales[part] = rows.codes, rows.scales

    share_out([convert] * min(torch.get_num_threads(), MOST), range(-(-out // step)))
    return whole


class Int8Weight:
    """A weight `[out, in]` for products with int8 activations.

    Attributes:
        shape: `(out, in)`.
    """

    def __init__(self, tensor: QuantTensor, encoded: Encoded) -> None:
        """Takes the codec of a tensor, and the codes and scales of one matrix of it."""
        rows = requantized(tensor.codec, encoded)
        self.shape = rows.codes.shape
        self._packed = torch.ops.onednn.qlinear_prepack(rows.codes, None)
        self._scales = rows.scales
        self._zeros = torch.zeros(len(rows.scales), dtype=torch.int32)

    def times(self, x: Int8Rows, dtype: torch.dtype) -> Tensor:
        """`x @ weight.T`, [R, out] in `dtype`; sums of whole numbers are exact."""
        y = self._product(x)
        if x.rest is not None:
            y.index_add_(0, x.coarse, self._product(x.rest))
        return y.to(dtype)

    def _product(self, x: Int8Rows) -> Tensor:
        return _multiplied(x.codes, self._packed, self._scales, self._zeros).mul_(x.scales)


def _multiplied(codes: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Codes int8 [R, in] times a packed weight [out, in], fp32 [R, out]: whole sums, times the weight's scales.

    AMX tiles multiply signed numbers. All other int8 instructions need unsigned numbers on one side, and without AMX
    oneDNN has only its reference code for two signed ones, which is thousands of times slower: the codes are shifted by
    128 and passed with that zero point, which changes no sum.
    """
    zero = 0
    if not multiplies_signed():
        codes, zero = codes.view(torch.uint8).bitwise_xor(_SHIFT), _SHIFT
    y: Tensor = torch.ops.onednn.qlinear_pointwise(
        codes, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return y


def row_bytes(tensor: QuantTensor) -> int:
    """Bytes of a tensor `[…, out, in]` as int8 with one scale a row."""
    return prod(tensor.shape) + torch.float32.itemsize * prod(tensor.shape[:-1])


@cache
def multiplies_int8() -> bool:
    """Whether this machine's int8 matmul exists, is exact with the largest codes, and is not reference code.

    Without instructions for it, sums of two products overflow 16 bits, or it is computed number by number.
    """
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    largest = torch.full((2, _CHECKED), LARGEST, dtype=torch.int8)
    largest[1] = -LARGEST
    try:
        product = _trial(largest)()
    except RuntimeError:
        return False
    return torch.equal(product, largest.float() @ largest.float().T) and not is_reference_code()


def is_reference_code() -> bool:
    """Whether int8 products take far longer than fp32 ones.

    In one thread, by the time that it computes: on a machine with other work, several that wait for each other have
    been seen to take twenty times as long, and then a model would compute otherwise than before.
    """
    codes = torch.ones(_TIMED, dtype=torch.int8)
    floats = codes.float()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _least_seconds(_trial(codes)) > _SLOW * _least_seconds(lambda: floats @ floats.T)
    finally:
        torch.set_num_threads(threads)


def _trial(codes: Tensor) -> Callable[[], Tensor]:
    """Codes [R, in] times themselves."""
    packed = torch.ops.onednn.qlinear_prepack(codes, None)
    return partial(_multiplied, codes, packed, torch.ones(len(codes)), torch.zeros(len(codes), dtype=torch.int32))


def _least_seconds(work: Callable[[], object]) -> float:
    clock = time.perf_counter if sys.platform == "win32" else time.thread_time  # whose ticks are too long there
    seconds = []
    for _ in range(_RUNS):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)


@cache
def multiplies_signed() -> bool:
    """Whether this CPU has instructions for products of two signed int8 matrices, as AMX has."""
    is_there = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return is_there is not None and bool(is_there())
