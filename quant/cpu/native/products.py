"""The native kernel as modules: experts, as one stacked tensor times the rows routed to each, and linear layers.

What is rounded beyond the stored weights: activations to int8, with one scale per row and group of 64, which changes
normally distributed rows by 0.6 % of their norm; and nf4's levels to steps of 1/127, which moves the error of normally
distributed weights from 8.31 to 8.33 %. One value that dwarfs a group costs the rest of that group, and no other.
Shape letters: R rows, P chosen pairs of row and expert in the order of experts, E experts, in, out features.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from quant.cpu.native.library import NativeLibrary
from quant.modules.linear import QuantLinear
from quant.modules.tensor import QuantTensor


def path_of(tensor: QuantTensor, library: NativeLibrary) -> str:
    """How a tensor is multiplied, in words."""
    return f"{tensor.codec.name} by int8, native, {library.instructions}"


class NativeProduct:
    """Experts from their stored codes: an `ExpertProduct`.

    Args:
        tensor: `[E, out, in]`, of a shape that the library takes.
    """

    def __init__(self, tensor: QuantTensor, library: NativeLibrary) -> None:
        self._weights = tensor.encoded.contiguous()
        self._is_nf4 = tensor.codec.name == "nf4"
        self._library = library
        self.path = path_of(tensor, library)

    def __call__(self, x: Tensor, chosen: Tensor | None, counts: Sequence[int]) -> Tensor:
        rows = self._library.rows(x, nf4=self._is_nf4)
        return self._library.multiply(rows, self._weights, chosen, counts).to(x.dtype)


class NativeLinear(nn.Module):
    """`x @ weight.T` from stored codes."""

    def __init__(self, linear: QuantLinear, library: NativeLibrary) -> None:
        super().__init__()
        self._weights = linear.weight.encoded.contiguous()[None]
        self._shape = linear.weight.shape
        self._is_nf4 = linear.weight.codec.name == "nf4"
        self._library = library
        self.path = path_of(linear.weight, library)

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`, in the type of `x`."""
        rows = x.reshape(-1, x.shape[-1])
        y = self._library.multiply(self._library.rows(rows, nf4=self._is_nf4), self._weights, None, [len(rows)])
        return y.to(x.dtype).view(*x.shape[:-1], y.shape[-1])

    def extra_repr(self) -> str:
        """Shape, for `print(model)`."""
        return f"{list(self._shape)}"
