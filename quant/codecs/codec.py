"""The interface of every codec, the encoded tensor that it produces, and how all of them encode and are measured.

Knows the shape of the two parts, codes and scales; knows no number format. Shapes: `in` is the last axis of a weight,
the input of its product, and `…` stands for any axes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

GROUP = 64
"""Consecutive weights along `in` that share a scale: 704 and 2112 divide by 64 and not by 128."""

_ROW_ELEMENTS = 1 << 17
"""Elements whose error is measured at a time on a CPU: two fp32 buffers of 512 KB."""

SOURCE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """A quantized tensor as it is stored.

    Attributes:
        codes: U8 `[…, in/2]` (nf4) or I8 `[…, in]` (int8).
        scales: BF16 `[…, in/64]`.
    """

    codes: Tensor
    scales: Tensor

    @property
    def nbytes(self) -> int:
        """Stored bytes."""
        return self.codes.nbytes + self.scales.nbytes

    def __getitem__(self, index: int | slice | Tensor | None) -> Encoded:
        """The part with this index on the first axis; a tensor of indices gathers rows, None makes a stack of one."""
        return Encoded(codes=self.codes[index], scales=self.scales[index])

    def contiguous(self) -> Encoded:
        """The same tensor, each part in one piece."""
        return Encoded(codes=self.codes.contiguous(), scales=self.scales.contiguous())


class NotFiniteError(ValueError):
    """A weight to be encoded holds an infinity or a NaN."""


class Codec(Protocol):
    """A number format of 64-groups with one bf16 scale each.

    Attributes:
        name: its name in recipes and manifests.
        codes_dtype: type of the stored codes.
        codes_per_byte: weights in one byte of codes.
        error_limit: relative RMSE above which an encoded tensor is refused: no sane weight loses this much.
    """

    name: str
    codes_dtype: torch.dtype
    codes_per_byte: int
    error_limit: float

    def encode(self, weight: Tensor) -> Encoded:
        """Quantize `[…, in]` (bf16, fp16 or fp32) on its device.

        Raises:
            ValueError: `in` is not a multiple of 64, or the type is not a float type.
            NotFiniteError: a value is not finite.
        """

    def decode(self, encoded: Encoded, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weights `[…, in]`: computed in fp32, then rounded to `dtype`."""


def codes_shape(codec: Codec, shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of the codes of a weight `[…, in]`."""
    _check_shape(shape)
    return (*shape[:-1], shape[-1] // codec.codes_per_byte)


def scales_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of the scales of a weight `[…, in]`."""
    _check_shape(shape)
    return (*shape[:-1], shape[-1] // GROUP)


def stored_bytes(codec: Codec, shape: Sequence[int]) -> int:
    """Bytes of codes and scales together, from the shape alone."""
    return prod(codes_shape(codec, shape)) + 2 * prod(scales_shape(shape))


def finite_absmax(weights: Tensor) -> Tensor:
    """Largest magnitudes `[n]` of groups `[n, 64]`.

    Raises:
        NotFiniteError: a value is not finite.
    """
    absmax = weights.abs().amax(dim=-1)
    if not bool(torch.isfinite(absmax).all()):
        raise NotFiniteError("weights should be finite")
    return absmax


def chunk_groups(device: torch.device) -> int:
    """Groups that are encoded at a time: on a CPU, three fp32 buffers of 512 KB, near a second-level cache in size."""
    return 1 << 11 if device.type == "cpu" else 1 << 18


def encode_in_chunks(codec: Codec, weight: Tensor, encode: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Encoded:
    """What `Codec.encode` returns; working memory does not grow with the weight.

    Args:
        encode: gives the codes and scales of groups `[n, 64]` in fp32.
    """
    _check_shape(weight.shape)
    if weight.dtype not in SOURCE_DTYPES:
        raise ValueError(f"{weight.dtype=} should be one of bfloat16, float16, float32")
    groups, step = weight.reshape(-1, GROUP), chunk_groups(weight.device)
    width = GROUP // codec.codes_per_byte
    codes = torch.empty(len(groups), width, dtype=codec.codes_dtype, device=weight.device)
    scales = torch.empty(len(groups), dtype=torch.bfloat16, device=weight.device)
    for start in range(0, len(groups), step):
        part = slice(start, start + step)
        codes[part], scales[part] = encode(groups[part].float())
    rows = weight.shape[:-1]
    return Encoded(codes=codes.view(*rows, -1), scales=scales.view(*rows, -1))


def squared_error(decoded: Tensor, source: Tensor) -> tuple[float, float]:
    """`(‖decoded - source‖², ‖source‖²)` of `[…, in]`, so that parts of a tensor add up.

    Rows are summed in fp32, then their sums in fp64; rows are taken a few at a time, which keeps them in a CPU's cache.
    """
    expected, found = source.flatten(0, -2), decoded.flatten(0, -2)
    step = max(1, _ROW_ELEMENTS // source.shape[-1]) if source.device.type == "cpu" else len(expected)
    squared = norm = 0.0
    for start in range(0, len(expected), step):
        reference = expected[start : start + step].float()
        difference = torch.sub(found[start : start + step], reference)
        squared += _total(difference.square_())
        norm += _total(torch.mul(reference, reference, out=difference))
    return squared, norm


def _total(values: Tensor) -> float:
    return float(values.sum(dim=-1).sum(dtype=torch.float64))


def _check_shape(shape: Sequence[int]) -> None:
    """Refuse a shape that does not divide into groups.

    Raises:
        ValueError: fewer than two axes, an empty axis, or a last axis that is not a multiple of 64.
    """
    if len(shape) < 2 or 0 in shape or shape[-1] % GROUP:
        raise ValueError(f"shape={list(shape)} should be [..., in] with in a positive multiple of {GROUP}")
