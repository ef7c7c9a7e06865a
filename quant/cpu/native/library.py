"""The compiled kernel as functions of tensors.

Knows the layouts of its arguments, which are those of the structures in `product.h`. Rounds more than what is stored:
activations to int8, with one scale per row and group of 64, which changes normally distributed rows by 0.6 % of their
norm; and nf4's levels to steps of 1/127, which moves the error of normally distributed weights from 8.31 to 8.33 %. A
value that dwarfs the rest of its group costs precision in that group only.
Shape letters: R rows, P products of a row with a weight, E weights, in, out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded
from quant.codecs.nf4 import LEVELS
from quant.cpu.native.attention import NativeAttention
from quant.cpu.native.calls import DTYPES, addresses, function_of, integers, number_of, pointers, run, text_of
from quant.cpu.native.logits import NativeLogits
from quant.cpu.native.soft_embedding import NativeSoftEmbedding

STEPS = 127
"""Levels of nf4 are rounded to this many steps on each side of zero, activations as well."""
GROUP_BYTES = GROUP + 8
"""Bytes of a row's activations in a group: codes, a scale and an offset."""
MIN_ACTIVATIONS_PER_THREAD = 1 << 20
"""Fewer take less time than it takes to wake up a thread."""


class _Rows(ctypes.Structure):
    _fields_ = (*pointers("x", "groups"), *integers("count", "in_", "is_bf16", "is_nf4", "next"))


class _Product(ctypes.Structure):
    _fields_ = (
        *pointers("codes", "scales", "levels", "groups", "chosen", "starts", "result"),
        *integers("weights", "out", "in_", "is_bf16", "next"),
    )


class NativeLibrary:
    """The compiled kernels: products as a method, all others as attributes.

    Args:
        path: of the shared library.

    Raises:
        OSError: it cannot be opened.
        AttributeError: it lacks a function.

    Attributes:
        instructions: those that it was compiled for.
        has_tiles: whether products are computed by AMX.
        lanes: the number of rows of a weight must be a multiple of it.
        max_inputs: maximum number of inputs of a weight.
        attention: its attention.
        soft_embedding: its soft embeddings.
        logits: its statistics of logits.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._quantize = function_of(library.quantize, _Rows)
        self._multiply = function_of(library.multiply, _Product)
        self.lanes, self.max_inputs = number_of(library.lanes), number_of(library.max_inputs)
        self.has_tiles = bool(number_of(library.use_tiles))
        self.instructions = "AMX, " * self.has_tiles + text_of(library.instructions)
        self.attention = NativeAttention(library)
        self.soft_embedding = NativeSoftEmbedding(library)
        self.logits = NativeLogits(library)
        self._levels = torch.tensor(LEVELS, dtype=torch.float64).mul(STEPS).round().to(torch.int8)

    def path(self, codec: str) -> str:
        """How weights of a codec are multiplied, in words."""
        return f"{codec} by int8, native, {self.instructions}"

    def supports(self, shape: Sequence[int]) -> bool:
        """Whether a weight `[…, out, in]` divides into tiles, and is not too wide."""
        return shape[-2] % self.lanes == 0 and shape[-1] % GROUP == 0 and shape[-1] <= self.max_inputs

    def multiply(self, x: Tensor, weights: Encoded, chosen: Tensor | None, counts: Sequence[int]) -> Tensor:
        """Multiplies rows with the weights that they are routed to.

        Args:
            x: [R, in] rows of any float type.
            weights: [E, out, in], contiguous, of a shape that `supports` is true for.
            chosen: int64 [P], the row of each product, in the order of weights; None where product n is with row n.
            counts: [E] how many of the products are with each weight.

        Returns:
            [P, out] in the type of `x`.

        Raises:
            ValueError: the arguments do not fit together.
        """
        codes, scales = weights.codes, weights.scales
        is_nf4 = codes.dtype == torch.uint8
        number, out = codes.shape[:2]
        width = codes.shape[2] * (2 if is_nf4 else 1)
        pairs = sum(counts)
        if not self.supports((out, width)):
            raise ValueError(f"weights of {out} outputs and {width} inputs do not fit the kernel")
        _check(x, weights, chosen, counts, (number, out, width))
        groups = self.rounded(x, nf4=is_nf4)
        starts = torch.tensor([0, *accumulate(counts)], dtype=torch.int64)
        result = torch.empty(pairs, out, dtype=x.dtype if x.dtype in DTYPES else torch.float32)
        tensors = (codes, scales, self._levels if is_nf4 else None, groups, chosen, starts, result)
        run(self._multiply, _Product(*addresses(tensors), number, out, width, result.dtype == torch.bfloat16), tensors)
        return result.to(x.dtype)

    def rounded(self, x: Tensor, *, nf4: bool) -> Tensor:
        """Rows [R, in] in int8, as the kernel reads them.

        Args:
            nf4: whether in the order of nf4's codes.

        Returns:
            U8 [R, in/64, 72]: codes in the order of the weights' codes, an fp32 scale, an int32 offset.
        """
        x = x.contiguous() if x.dtype in DTYPES else x.float().contiguous()
        count, width = x.shape
        groups = torch.empty(count, width // GROUP, GROUP_BYTES, dtype=torch.uint8)
        arguments = _Rows(*addresses((x, groups)), count, width, x.dtype == torch.bfloat16, nf4)
        run(self._quantize, arguments, (x, groups), max_threads=1 + x.numel() // MIN_ACTIVATIONS_PER_THREAD)
        return groups


def _check(
    x: Tensor, weights: Encoded, chosen: Tensor | None, counts: Sequence[int], shape: tuple[int, int, int]
) -> None:
    """Refuses arguments that do not fit together: the kernel reads wherever they point."""
    number, out, width = shape
    if not (weights.codes.is_contiguous() and weights.scales.is_contiguous()):
        raise ValueError("codes and scales should be contiguous")
    if weights.scales.shape != (number, out, width // GROUP) or weights.scales.dtype != torch.bfloat16:
        raise ValueError(f"scales {list(weights.scales.shape)} do not belong to codes {list(weights.codes.shape)}")
    if x.shape[1] != width:
        raise ValueError(f"rows of {x.shape[1]} inputs do not belong to weights of {width}")
    if len(counts) != number or min(counts) < 0:
        raise ValueError(f"counts should be {number} numbers of products")
    pairs = sum(counts)
    if chosen is None and pairs != len(x):
        raise ValueError(f"chosen should be given for {pairs} products of {len(x)} rows")
    if chosen is not None and (chosen.shape != (pairs,) or chosen.dtype != torch.int64 or not chosen.is_contiguous()):
        raise ValueError(f"chosen should be int64 [{pairs}], contiguous")
    if chosen is not None and pairs and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(x):
        raise ValueError(f"chosen should name rows from 0 to {len(x) - 1}")
