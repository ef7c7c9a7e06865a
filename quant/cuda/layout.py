"""Codes and scales in the order in which the kernels read them: group by group, and all rows of a group together.

    stored              codes [E, N, K/2] or [E, N, K]        scales [E, N, K/64]
    tiled               codes [E, K/64, N, 32] or [.., 64]    scales [E, K/64, N]
    tiled, by lanes     codes [E, K/64, N, 8] (nf4, words of four bytes) or [E, K/32, N, 32] (int8)

A program that multiplies some rows reads one contiguous run of bytes per group. Stored, the two codes of a byte are
adjacent; tiled, they are 32 apart, so that the low halves of a group's bytes meet one contiguous run of activations,
and the high halves the next. The scales of rows that are 8 apart are adjacent (0 and 8, 1 and 9, of each 16 rows): a
lane of a matrix instruction has both rows, and 4 bytes are the least that a GPU can copy to shared memory
asynchronously, ahead of the loop iteration that needs them. For `wgmma`, the bytes of each 16 rows are in the order of
lanes (`_by_lanes`), so that each lane reads all of its bytes at once (of int8, those of half a group); for `mma.sync`
a lane's bytes of a row are adjacent anyway. By lanes, a byte of nf4 has the two codes that it has as stored, since two
adjacent weights fill a register of the matrix instruction, and bytes come in words, which Triton can hold in registers
from one iteration of a loop to the next. Nothing is rounded: codes and scales are the same.
Shape letters: E experts, N rows of a weight, K its input, G = K / 64 groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Codec, Encoded
from quant.cuda import tiles
from quant.cuda.tiles import Activations

HALF = GROUP // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiled:
    """A quantized weight `[E, N, K]` as kernels read it.

    Attributes:
        codes: of nf4, uint8 [E, K/64, N, 32], code k of a group in the low and code k + 32 in the high half of a byte;
            by lanes, int32 [E, K/64, N, 8], code 2 k in the high and code 2 k + 1 in the low half of a byte. Of int8,
            int8 [E, K/64, N, 64], by lanes [E, K/32, N, 32].
        scales: bf16 [E, K/64, N], in the order above; N is a multiple of 16.
        by_lanes: whether the bytes of each 16 rows are in the order of lanes.
    """

    codes: Tensor
    scales: Tensor
    by_lanes: bool

    @property
    def is_nf4(self) -> bool:
        """Whether a byte holds two codes."""
        return self.codes.dtype != torch.int8

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is stored."""
        return self.codes, self.scales

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
class Unquantized:
    """A weight `[E, N, K]` as published, which kernels read row by row."""

    weight: Tensor

    is_nf4 = False
    by_lanes = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is stored."""
        return (self.weight,)

    @property
    def codes(self) -> Tensor:
        """The weight itself."""
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


def tiled(codec: Codec, encoded: Encoded, activations: Activations) -> Tiled:
    """A stored weight `[E, N, K]` on its GPU, converted in place: `encoded` is overwritten, one expert at a time.

    A copy would hold the weight twice for a moment, and leave a hole in torch's memory that the next one does not fit.
    """
    experts, rows, groups = encoded.scales.shape
    is_nf4, last = codec.codes_per_byte == 2, GROUP // codec.codes_per_byte
    by_lanes = activations == "a16" and tiles.mma_kind(encoded.codes.device) == "wgmma"
    shape = (groups * last // HALF, rows, HALF) if by_lanes else (groups, rows, last)
    codes = encoded.codes.view(experts, *shape)
    scales = encoded.scales.view(experts, groups, rows)
    for expert in range(experts):
        of_expert = encoded.codes[expert].view(rows, groups, last)
        if by_lanes:
            by_groups = of_expert.transpose(0, 1)
            codes[expert] = _pairs_by_lanes(by_groups) if is_nf4 else _by_lanes(by_groups)
        else:
            # A mere transpose is a view of the memory that is written to: hence the copy.
            in_order = _halves(of_expert) if is_nf4 else of_expert
            codes[expert] = in_order.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        scales[expert] = _paired(encoded.scales[expert].T)
    if by_lanes and is_nf4:
        codes = codes.view(torch.int32)
    return Tiled(codes=codes, scales=scales, by_lanes=by_lanes)


def _halves(pairs: Tensor) -> Tensor:
    """Bytes [..., 32] of adjacent codes, the first one high, to bytes of codes that are 32 apart, the first one low."""
    codes = torch.stack((pairs >> 4, pairs & 15), dim=-1).flatten(-2)
    return codes[..., :HALF] | (codes[..., HALF:] << 4)


def _paired(scales: Tensor) -> Tensor:
    """Scales [K/64, N], copied, with those of rows that are 8 apart made adjacent."""
    return scales.reshape(len(scales), -1, 2, 8).transpose(-1, -2).reshape(scales.shape)


def _by_lanes(codes: Tensor) -> Tensor:
    """Bytes [G, N, 64] of int8 to [2 G, N, 32], the 16 that a lane of `wgmma` has of each 16 rows made adjacent.

    Lane 4 r + t has bytes 2 t and 2 t + 1 of every 8, in row r and in row r + 8. They are stored in the order of its
    registers: two bytes of row r, the same two of row r + 8, then those 8 bytes further along.
    """
    halves = codes.reshape(*codes.shape[:2], 2, HALF).transpose(1, 2).flatten(0, 1)
    count, rows, _ = halves.shape
    parts = halves.reshape(count, rows // 16, 2, 8, 4, 4, 2)
    return parts.permute(0, 1, 3, 5, 4, 2, 6).reshape(halves.shape)


def _pairs_by_lanes(pairs: Tensor) -> Tensor:
    """Bytes [G, N, 32] of adjacent codes to [G, N, 32], the 16 that a lane of `wgmma` has of each 16 rows adjacent.

    Lane 4 r + t has byte t of every 4, in row r and in row r + 8: a byte of the first half of the group in row r, one
    of the second half, the same two of row r + 8, then those 4 bytes further along.
    """
    groups, rows, _ = pairs.shape
    parts = pairs.reshape(groups, rows // 16, 2, 8, 2, 4, 4)
    return parts.permute(0, 1, 3, 6, 5, 2, 4).reshape(pairs.shape)
