"""Activations as int8 with one scale per row, and a second pass where that is too coarse.

The error of rounding a row to 127 steps of its largest value is that value over `127 · √12` in units of the row's root
mean square: 1 % where the largest is 4.4 times the root mean square, as in 2816 draws from a normal distribution, but 9
% where one channel is 40 times as large, and such channels are known in language models (arXiv 2508.14896). A row whose
error would pass `LIMIT` is therefore the sum of two int8 rows: the residual of the first is rounded to 127 steps again.
Shape letters: R rows, K columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

MAX_CODE = 127
LIMIT = 0.02
"""Maximum relative error of a row after one pass."""

_PEAK = LIMIT * MAX_CODE * math.sqrt(12)
"""Peak of a row with that error, in units of its root mean square."""
_TINY = 2.0**-120


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """Rows `[R, K]` as `codes * scales`.

    Attributes:
        codes: I8 `[R, K]`.
        scales: fp32 `[R, 1]`.
        residual_rows: indices of the rows that have a residual, ascending.
        residual: what rounding left of those rows, in the same form; None where there are none.
    """

    codes: Tensor
    scales: Tensor
    residual_rows: Tensor
    residual: Int8Rows | None

    def take(self, rows: Tensor) -> Int8Rows:
        """The rows with these indices, which may repeat."""
        codes, scales = self.codes[rows], self.scales[rows]
        if self.residual is None:
            return Int8Rows(codes, scales, self.residual_rows, None)
        place = torch.full((len(self.codes),), -1, dtype=torch.int64)
        place[self.residual_rows] = torch.arange(len(self.residual_rows))
        chosen = place[rows]
        residual_rows = (chosen >= 0).nonzero().squeeze(1)
        residual = self.residual.take(chosen[residual_rows]) if len(residual_rows) else None
        return Int8Rows(codes, scales, residual_rows, residual)

    def split(self, counts: Sequence[int]) -> list[Int8Rows]:
        """Consecutive parts of the rows, with these numbers of rows."""
        codes, scales = torch.split(self.codes, list(counts)), torch.split(self.scales, list(counts))
        if self.residual is None:
            return [Int8Rows(codes[part], scales[part], self.residual_rows, None) for part in range(len(counts))]
        ends = torch.tensor(counts).cumsum(0)
        bounds = [0, *torch.searchsorted(self.residual_rows, ends).tolist()]
        sizes = [end - start for start, end in pairwise(bounds)]
        residuals = self.residual.split(sizes)
        numbers = torch.split(self.residual_rows, sizes)
        starts = [0, *ends.tolist()]
        return [
            Int8Rows(codes[part], scales[part], numbers[part] - starts[part], residuals[part] if sizes[part] else None)
            for part in range(len(counts))
        ]

    def decode(self) -> Tensor:
        """The rows in fp32."""
        values = self.codes.float() * self.scales
        if self.residual is not None:
            values[self.residual_rows] += self.residual.decode()
        return values


def quantize_rows(x: Tensor) -> Int8Rows:
    """Rows `[R, K]` of any float type as int8."""
    values = x.float()
    codes, scales, peaks = round_rows(values)
    mean_square = torch.linalg.vector_norm(values, dim=-1, keepdim=True).square_().div_(values.shape[-1])
    residual_rows = (peaks.square() > _PEAK**2 * mean_square).squeeze(1).nonzero().squeeze(1)
    if not len(residual_rows):
        return Int8Rows(codes, scales, residual_rows, None)
    residual = values[residual_rows] - codes[residual_rows].float() * scales[residual_rows]
    residual_codes, residual_scales, _ = round_rows(residual)
    return Int8Rows(codes, scales, residual_rows, Int8Rows(residual_codes, residual_scales, residual_rows[:0], None))


def round_rows(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes I8 `[R, K]`, scales and largest magnitudes `[R, 1]` of rows `[R, K]` in fp32."""
    peaks = values.abs().amax(dim=-1, keepdim=True)
    scales = peaks / MAX_CODE
    inverse = torch.where(scales > _TINY, 1 / scales, 0.0)
    return torch.mul(values, inverse).round_().to(torch.int8), scales, peaks
