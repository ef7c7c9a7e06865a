"""A weight as int8 with one scale a row, in the layout that oneDNN multiplies fastest.

Made from a weight that is stored in groups, once, with the error that the coarser scales add on record. Knows one
matrix; knows nothing about where its rows come from.
Shape letters: R rows of activations, out, in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import torch
from torch import Tensor

from ..codec import GROUP, Codec, Encoded, squared_error
from ..modules.tensor import QuantTensor
from .rows import LARGEST, Int8Rows
from .sharing import MOST, share_out

_CHECKED = 128
_ELEMENTS = 1 << 19
"""Of a matrix that are converted at a time: few enough for a core's cache, and so many that two threads seldom meet."""

_MEASURED_EVERY = 8
"""Parts of a matrix of which the first is measured: to measure all of them takes as long as to make them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowWeight:
    """A weight `[out, in]` as whole numbers with one scale a row: codes I8, scales fp32 `[out]`."""

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


def requantized(codec: Codec, encoded: Encoded) -> tuple[RowWeight, tuple[float, float]]:
    """A stored weight `[out, in]` by rows, and what its rows' scales add: `(‖this - stored‖², ‖stored‖²)`.

    A few rows at a time, which stay in a core's cache: the whole matrix at once takes four times as long. The squares
    are sums over an eighth of the parts.
    """
    out, width = len(encoded.scales), encoded.scales.shape[-1] * GROUP
    whole = RowWeight(codes=torch.empty(out, width, dtype=torch.int8), scales=torch.empty(out))
    step = max(1, _ELEMENTS // width)
    squares = [(0.0, 0.0)] * -(-out // step)

    def convert(number: int) -> None:
        part = slice(number * step, (number + 1) * step)
        stored = codec.decode(encoded[part], torch.float32)
        rows = RowWeight.of(stored)
        whole.codes[part], whole.scales[part] = rows.codes, rows.scales
        if number % _MEASURED_EVERY == 0:
            squares[number] = squared_error(rows.decode(), stored)

    share_out([convert] * min(torch.get_num_threads(), MOST), range(len(squares)))
    difference, reference = (sum(column) for column in zip(*squares, strict=True))
    return whole, (difference, reference)


class Int8Weight:
    """A weight `[out, in]` for products with int8 activations.

    Attributes:
        shape: `(out, in)`.
        squares: what its rows' scales add, over an eighth of its rows: `(‖this - stored‖², ‖stored‖²)`.
    """

    def __init__(self, tensor: QuantTensor, encoded: Encoded) -> None:
        """Takes the codec of a tensor, and the codes and scales of one matrix of it."""
        rows, self.squares = requantized(tensor.codec, encoded)
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
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            x.codes, 1.0, 0, self._packed, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y.mul_(x.scales)


def row_bytes(tensor: QuantTensor) -> int:
    """Bytes of a tensor `[…, out, in]` as int8 with one scale a row."""
    return prod(tensor.shape) + torch.float32.itemsize * prod(tensor.shape[:-1])


def relative_error(squares: list[tuple[float, float]]) -> float:
    """Relative root-mean-square error over several weights."""
    difference, reference = (sum(column) for column in zip(*squares, strict=True))
    return float((difference / reference) ** 0.5) if reference else 0.0


@cache
def multiplies_int8() -> bool:
    """Whether this machine's int8 product is there and exact with the largest codes.

    Without the instructions made for it, sums of two products overflow 16 bits.
    """
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    largest = torch.full((2, _CHECKED), LARGEST, dtype=torch.int8)
    largest[1] = -LARGEST
    try:
        packed = torch.ops.onednn.qlinear_prepack(largest, None)
        product = torch.ops.onednn.qlinear_pointwise(
            largest, 1.0, 0, packed, torch.ones(2), torch.zeros(2, dtype=torch.int32), None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
    except RuntimeError:
        return False
    return torch.equal(product, largest.float() @ largest.float().T)
