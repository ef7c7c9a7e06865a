"""One stacked tensor of experts `[E, out, in]` times the rows routed to each expert.

Three implementations of one interface: by the native kernel, in int8 by rows, and decoded expert by expert. A decoded
weight is the left factor, `weight @ rows.T`: a matmul packs its right factor for its inner loop, and a handful of rows
is less to pack than a weight. Measured at 16 rows: half the time.
Shape letters: R rows, P chosen pairs of row and expert in the order of experts, E experts, in, out features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from quant.cpu.bitsandbytes_library import Nf4Library
from quant.cpu.int8_weight import PATH, PackedWeight
from quant.cpu.native.library import NativeLibrary
from quant.cpu.parallel import parallel_for, thread_count
from quant.cpu.rows import quantize_rows
from quant.dtypes import short_name
from quant.modules.tensor import QuantTensor

Multiply: TypeAlias = Callable[[int, slice], Tensor]
"""The product [out, M] of an expert with its part of the P pairs."""


class ExpertProduct(Protocol):
    """Multiplies rows with the weights of the experts they are routed to."""

    @property
    def path(self) -> str:
        """How it is computed, in words."""

    def __call__(self, x: Tensor, chosen: Tensor | None, counts: Sequence[int]) -> Tensor:
        """Multiply each row with the weight of each expert that it is routed to.

        Args:
            x: [R, in] rows.
            chosen: [P] row indices, sorted by expert; None where `x` has that order already.
            counts: [E] how many of the P belong to each expert; at least one of them is not 0.

        Returns:
            [P, out] in the type of `x`.
        """


class NativeProduct:
    """Experts from their stored codes, by the native kernel.

    Args:
        tensor: `[E, out, in]`, of a shape that the library supports.
    """

    def __init__(self, tensor: QuantTensor, library: NativeLibrary) -> None:
        self._weights = tensor.encoded.contiguous()
        self._library = library
        self.path = library.path(tensor.codec.name)

    def __call__(self, x: Tensor, chosen: Tensor | None, counts: Sequence[int]) -> Tensor:
        return self._library.multiply(x, self._weights, chosen, counts)


class DecodedProduct:
    """Decodes an expert at a time: as its codec does, or with bitsandbytes' library.

    Args:
        tensor: `[E, out, in]`; NF4 for the library.
        compute: type of the product; bf16 or fp32 for the library.
    """

    def __init__(self, tensor: QuantTensor, compute: torch.dtype, library: Nf4Library | None = None) -> None:
        self._codec, self._encoded = tensor.codec, tensor.encoded.contiguous()
        self._compute, self._library = compute, library
        name = short_name(compute)
        decoded = f"decoded to {name}" if library is None else f"nf4 decoded to {name} by bitsandbytes"
        self.path = f"{decoded}, multiplied through torch"

    def __call__(self, x: Tensor, chosen: Tensor | None, counts: Sequence[int]) -> Tensor:
        rows = (x if chosen is None else x[chosen]).to(self._compute)

        def multiplier() -> Multiply:
            decode = self._decoder()
            return lambda expert, part: torch.mm(decode(expert), rows[part].t())

        out = x.new_empty(len(rows), self._encoded.codes.shape[1])
        return _products(multiplier, counts, out, None if self._library is None else self._library.file)

    def _decoder(self) -> Callable[[int], Tensor]:
        if self._library is None:
            return lambda expert: self._codec.decode(self._encoded[expert], self._compute)
        return self._library.decoder(self._encoded.codes, self._encoded.scales, self._compute)


class Int8Product:
    """Int8 weights and activations, one scale per row of each.

    Args:
        tensor: `[E, out, in]`; one expert at a time is decoded and requantized.
    """

    def __init__(self, tensor: QuantTensor) -> None:
        encoded = tensor.encoded
        self._weights = [PackedWeight(tensor.codec, encoded[expert]) for expert in range(tensor.shape[0])]
        self.path = PATH

    def __call__(self, x: Tensor, chosen: Tensor | None, counts: Sequence[int]) -> Tensor:
        rows = quantize_rows(x)
        if chosen is not None:
            rows = rows.take(chosen)
        pieces = rows.split(counts)

        def multiply(expert: int, part: slice) -> Tensor:
            return self._weights[expert].times(pieces[expert], x.dtype).t()

        return _products(lambda: multiply, counts, x.new_empty(len(rows.codes), self._weights[0].shape[0]))


def _products(
    multiplier: Callable[[], Multiply], counts: Sequence[int], out: Tensor, library: Path | None = None
) -> Tensor:
    """Fills `out` [P, out] expert by expert; every thread makes a multiplier of its own, with memory of its own."""

    def work() -> Callable[[tuple[int, slice]], None]:
        multiply = multiplier()

        def fill(item: tuple[int, slice]) -> None:
            expert, part = item
            out[part] = multiply(expert, part).t()

        return fill

    parallel_for([work() for _ in range(thread_count())], expert_parts(counts), library)
    return out


def expert_parts(counts: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """(expert, its part of the P pairs) of every expert that was chosen."""
    start = 0
    for expert, count in enumerate(counts):
        if count:
            yield expert, slice(start, start + count)
        start += count
