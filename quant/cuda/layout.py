"""Codes and scales in the order in which the kernels read them: group by group, and all rows of a group together.

    stored     codes [E, N, K/2] or [E, N, K]        scales [E, N, K/64]
    tiled      codes [E, K/64, N, 32] or [.., 64]    scales [E, K/64, N]

A program that multiplies some rows reads one run of bytes a group. The two codes of a byte are stored neighbours; here
they are 32 apart, so that all low and all high halves of a group's bytes meet one run of activations each. The scales
of rows that are 8 apart are neighbours, 0 and 8, 1 and 9, of each 16 rows: a lane of a matrix instruction has both
rows, and 4 bytes are the least that a GPU copies to shared memory ahead of the turn of a loop that takes them. Nothing
is rounded: codes and scales are the same.
Shape letters: E experts, N rows of a weight, K its input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..codecs.codec import GROUP, Codec, Encoded

HALF = GROUP // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiled:
    """A quantized weight `[E, N, K]` as kernels read it.

    Attributes:
        codes: uint8 [E, K/64, N, 32], code k of a group in the low and code k + 32 in the high half (nf4); or int8
            [E, K/64, N, 64].
        scales: bf16 [E, K/64, N], in the order above; N is a multiple of 16.
    """

    codes: Tensor
    scales: Tensor

    @property
    def is_nf4(self) -> bool:
        """Whether a byte holds two codes."""
        return self.codes.dtype == torch.uint8

    @property
    def scale_words(self) -> Tensor:
        """The scales, two in each int32 [E, K/64, N/2]."""
        return self.scales.view(torch.int32)

    @property
    def shape(self) -> tuple[int, int, int]:
        """E, N, K."""
        experts, groups, rows = self.scales.shape
        return experts, rows, groups * GROUP


@dataclass(frozen=True, slots=True)
class Whole:
    """A weight `[E, N, K]` as published, which kernels read row by row."""

    weight: Tensor

    is_nf4 = False

    @property
    def codes(self) -> Tensor:
        """What is multiplied."""
        return self.weight

    @property
    def scale_words(self) -> Tensor:
        """A placeholder for the kernel argument: there are no scales."""
        return self.weight

    @property
    def shape(self) -> tuple[int, int, int]:
        """E, N, K."""
        experts, rows, width = self.weight.shape
        return experts, rows, width


def tiled(codec: Codec, encoded: Encoded) -> Tiled:
    """A stored weight `[E, N, K]`, converted expert by expert, so that little extra memory is needed."""
    experts, rows, groups = encoded.scales.shape
    last = GROUP // codec.codes_per_byte
    codes = torch.empty(experts, groups, rows, last, dtype=codec.codes_dtype, device=encoded.codes.device)
    for expert in range(experts):
        of_expert = encoded.codes[expert].view(rows, groups, last)
        codes[expert] = (_halves(of_expert) if codec.codes_per_byte == 2 else of_expert).transpose(0, 1)
    return Tiled(codes=codes, scales=_paired(encoded.scales.transpose(1, 2)))


def _halves(pairs: Tensor) -> Tensor:
    """Bytes [..., 32] of neighbouring codes, the first one high, to bytes of codes that are 32 apart, the first low."""
    codes = torch.stack((pairs >> 4, pairs & 15), dim=-1).flatten(-2)
    return codes[..., :HALF] | (codes[..., HALF:] << 4)


def _paired(scales: Tensor) -> Tensor:
    """Scales [E, K/64, N] with those of rows that are 8 apart next to each other."""
    return scales.reshape(*scales.shape[:2], -1, 2, 8).transpose(-1, -2).reshape(scales.shape)
