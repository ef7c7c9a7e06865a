"""Linear layers over a quantized weight, optimized for the CPU.

Shape letters: in, out features of the product.
"""

from __future__ import annotations

import weakref

from torch import Tensor, nn

from quant.cpu.int8_weight import PATH, PackedWeight
from quant.cpu.native.library import NativeLibrary
from quant.cpu.rows import Int8Rows, quantize_rows
from quant.modules.linear import QuantLinear


class NativeLinear(nn.Module):
    """`x @ weight.T` from stored codes, by the native kernel."""

    def __init__(self, linear: QuantLinear, library: NativeLibrary) -> None:
        super().__init__()
        self._weights = linear.weight.encoded.contiguous()[None]
        self._library = library
        self.path = library.path(linear.weight.codec.name)

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`, in the type of `x`."""
        rows = x.reshape(-1, x.shape[-1])
        y = self._library.multiply(rows, self._weights, None, [len(rows)])
        return y.view(*x.shape[:-1], y.shape[-1])


class LastRows:
    """Caches the rows quantized last, for consecutive layers that are given the same tensor."""

    def __init__(self) -> None:
        self._last: tuple[weakref.ref[Tensor], Int8Rows] | None = None

    def of(self, x: Tensor) -> Int8Rows:
        """`x`, [..., in], as int8 rows. The tensor of the last call must not have been written to since."""
        last = self._last  # read and written as one: another thread may be at the same layers
        if last is not None and last[0]() is x:
            return last[1]
        rows = quantize_rows(x.reshape(-1, x.shape[-1]))
        self._last = weakref.ref(x), rows
        return rows


class Int8Linear(nn.Module):
    """`x @ weight.T` in int8, with one scale per row of the weight and one per row of `x`."""

    def __init__(self, linear: QuantLinear, last: LastRows) -> None:
        super().__init__()
        self._weight = PackedWeight(linear.weight.codec, linear.weight.encoded)
        self._last = last
        self.path = PATH

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`, in the type of `x`."""
        y = self._weight.times(self._last.of(x), x.dtype)
        return y.view(*x.shape[:-1], y.shape[-1])
