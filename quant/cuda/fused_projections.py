"""One GEMM in place of several over the same rows: their weights are stacked in one tensor.

    gate [N, K] ┐
    up   [N, K] ┴─► one weight [2 N, K], of which each module keeps a view of its own rows

Nothing is held twice, and a module that is saved or called by itself behaves as before. Knows linear layers,
unquantized, quantized and fast; knows nothing about what they are for. The modules get no gradients.
Shape letters: M rows, N rows of a weight, K its input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quant.codecs.codec import Encoded
from quant.cuda.linear import CudaLinear, Weight
from quant.dtypes import short_name
from quant.modules.linear import Linear, QuantLinear


class FusedProjections(nn.Module, ABC):
    """Several projections computed as one.

    It has no parameters and no buffers: those are the modules' own.

    Args:
        parts: modules that can be stacked; they stay where they are in the network.
        rows: number of rows of each module's weight.
        path: how it is computed, in words.

    Attributes:
        parts: the same; a module of the network may have been wrapped or replaced since.
    """

    def __init__(self, parts: Sequence[nn.Module], rows: Sequence[int], path: str) -> None:
        super().__init__()
        self.parts = tuple(parts)  # in a tuple, so that they are not registered as submodules
        self._rows = list(rows)
        self.path = f"{path}, stacked"

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output of each part for rows [..., K]: views [..., N] of one tensor."""
        return torch.split(self.times(x), self._rows, dim=-1)

    @abstractmethod
    def times(self, x: Tensor) -> Tensor:
        """The outputs of all parts, concatenated."""

    def gated(self, x: Tensor) -> Tensor | None:
        """`gelu(first) * second`, tanh form, of exactly two parts, in one launch with the GEMM; None if impossible."""
        del x
        return None


class StackedLinear(FusedProjections):
    """`Linear`s, through torch."""

    def __init__(self, linears: Sequence[Linear]) -> None:
        weights = [linear.weight.detach() for linear in linears]
        stacked = torch.cat(weights)
        rows = [len(weight) for weight in weights]
        for linear, part in zip(linears, torch.split(stacked, rows), strict=True):
            linear.weight = nn.Parameter(part, requires_grad=linear.weight.requires_grad)
        super().__init__(linears, rows, short_name(stacked.dtype))
        self._weight = stacked

    def times(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight)


class StackedQuantLinear(FusedProjections):
    """`QuantLinear`s of one codec, decoded together and multiplied through torch."""

    def __init__(self, linears: Sequence[QuantLinear]) -> None:
        tensors = [linear.weight for linear in linears]
        rows = [tensor.shape[0] for tensor in tensors]
        encoded = Encoded(
            codes=torch.cat([tensor.codes for tensor in tensors]),
            scales=torch.cat([tensor.scales for tensor in tensors]),
        )
        for tensor, codes, scales in zip(
            tensors, torch.split(encoded.codes, rows), torch.split(encoded.scales, rows), strict=True
        ):
            tensor.codes, tensor.scales = codes, scales
        super().__init__(linears, rows, getattr(linears[0], "path", "decoded, then multiplied"))
        self._codec, self._encoded = tensors[0].codec, encoded

    def times(self, x: Tensor) -> Tensor:
        return F.linear(x, self._codec.decode(self._encoded, x.dtype))


class StackedCudaLinear(FusedProjections):
    """`CudaLinear`s of one format, in one launch, also with a gate."""

    def __init__(self, linears: Sequence[CudaLinear]) -> None:
        weights = [linear.product for linear in linears]
        stacked = Weight.stacked(weights)
        super().__init__(linears, [weight.rows for weight in weights], stacked.path)
        self._weight = stacked

    def times(self, x: Tensor) -> Tensor:
        out = self._weight.times(x.reshape(-1, x.shape[-1]))
        return out.view(*x.shape[:-1], out.shape[-1])

    def gated(self, x: Tensor) -> Tensor | None:
        out = self._weight.gated(x.reshape(-1, x.shape[-1]))
        return None if out is None else out.view(*x.shape[:-1], out.shape[-1])


def stack(modules: Sequence[nn.Module]) -> FusedProjections | None:
    """One stacked module in place of these; None, with nothing changed, where they cannot be stacked.

    Weights of one format, type, width and device can be stacked; modules wrapped by something else, such as an adapter,
    cannot. While they are being stacked, these weights are held twice.
    """
    stacked = _stacked(modules)
    if stacked is not None:
        torch.cuda.empty_cache()  # the memory just freed is fragmented: the next stack would not fit into it
    return stacked


def _stacked(modules: Sequence[nn.Module]) -> FusedProjections | None:
    linears = [module for module in modules if type(module) is Linear]
    if len(linears) == len(modules) and _are_alike([linear.weight for linear in linears]):
        return StackedLinear(linears)
    quantized = [module for module in modules if isinstance(module, QuantLinear)]
    if (
        len(quantized) == len(modules)
        and len({type(linear) for linear in quantized}) == 1
        and _are_alike([linear.weight.codes for linear in quantized])
    ):
        return StackedQuantLinear(quantized)
    fast = [module for module in modules if type(module) is CudaLinear]
    if len(fast) == len(modules) and len({linear.product.activations for linear in fast}) == 1:
        axis = fast[0].product.axis
        if _are_alike([linear.product.codes for linear in fast], axis):
            return StackedCudaLinear(fast)
    return None


def _are_alike(weights: Sequence[Tensor], axis: int = 0) -> bool:
    """Whether tensors differ only in the size of one axis; their types tell codecs apart."""
    kinds = {(weight.dtype, weight.device, *weight.shape[:axis], *weight.shape[axis + 1 :]) for weight in weights}
    return len(kinds) == 1
