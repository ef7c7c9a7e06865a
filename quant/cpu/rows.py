"""Activations as int8 with one scale per row, and a second pass where that is too coarse.

The error of rounding a row to 127 steps of its largest value is that value over `127 · √12` in units of the row's root
mean square: 1 % where the largest is 4.4 times the root mean square, as in 2816 draws from a normal distribution, but 9
% where one channel is 40 times as large, and such channels are known of language models (arXiv 2508.14896). A row whose
error would pass `LIMIT` is therefore given as the sum of two: what the first leaves is rounded to 127 steps again.
Shape letters: R rows, K columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

LARGEST = 127
LIMIT = 0.02
"""Largest relative error of a row that one pass may leave."""

_PEAK = LIMIT * LARGEST * math.sqrt(12)
"""Largest value of such a row in units of its root mean square."""
_TINY = 2.0**-120


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """Rows `[R, K]` as `codes * scales`.

    Attributes:
        codes: I8 `[R, K]`.
        scales: fp32 `[R, 1]`.
        coarse: numbers of the rows that have a rest, ascending.
        rest: the rest of those rows, in the same form; None where there are none.
    """

    codes: Tensor
    scales: Tensor
    coarse: Tensor
    rest: Int8Rows | None

    def take(self, rows: Tensor) -> Int8Rows:
        """Rows by number, repeated or left out as the numbers say."""
        codes, scales = self.codes[rows], self.scales[rows]
        if self.rest is None:
            return Int8Rows(codes, scales, self.coarse, None)
        place = torch.full((len(self.codes),), -1, dtype=torch.int64)
        place[self.coarse] = torch.arange(len(self.coarse))
        chosen = place[rows]
        coarse = (chosen >= 0).nonzero().squeeze(1)
        return Int8Rows(codes, scales, coarse, self.rest.take(chosen[coarse]) if len(coarse) else None)

    def split(self, counts: Sequence[int]) -> list[Int8Rows]:
        """The rows in consecutive parts of so many rows each."""
        codes, scales = torch.split(self.codes, list(counts)), torch.split(self.scales, list(counts))
        if self.rest is None:
            return [Int8Rows(codes[part], scales[part], self.coarse, None) for part in range(len(counts))]
        ends = torch.tensor(counts).cumsum(0)
        bounds = [0, *torch.searchsorted(self.coarse, ends).tolist()]
        sizes = [end - start for start, end in pairwise(bounds)]
        rests = self.rest.split(sizes)
        numbers = torch.split(self.coarse, sizes)
        starts = [0, *ends.tolist()]
        return [
            Int8Rows(codes[part], scales[part], numbers[part] - starts[part], rests[part] if sizes[part] else None)
            for part in range(len(counts))
        ]

    def decode(self) -> Tensor:
        """The rows in fp32."""
        values = self.codes.float() * self.scales
        if self.rest is not None:
            values[self.coarse] += self.rest.decode()
        return values


def quantize_rows(x: Tensor) -> Int8Rows:
    """Rows `[R, K]` of any float type as int8."""
    values = x.float()
    codes, scales, peaks = _round(values)
    mean_square = torch.linalg.vector_norm(values, dim=-1, keepdim=True).square_().div_(values.shape[-1])
    coarse = (peaks.square() > _PEAK**2 * mean_square).squeeze(1).nonzero().squeeze(1)
    if not len(coarse):
        return Int8Rows(codes, scales, coarse, None)
    left = values[coarse] - codes[coarse].float() * scales[coarse]
    rest_codes, rest_scales, _ = _round(left)
    return Int8Rows(codes, scales, coarse, Int8Rows(rest_codes, rest_scales, coarse[:0], None))


def _round(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and largest magnitudes of rows in fp32."""
    peaks = values.abs().amax(dim=-1, keepdim=True)
    scales = peaks / LARGEST
    inverse = torch.where(scales > _TINY, 1 / scales, 0.0)
    return torch.mul(values, inverse).round_().to(torch.int8), scales, peaks
