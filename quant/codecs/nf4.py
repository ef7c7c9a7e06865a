"""The nf4 codec: sixteen levels, groups of 64, a fitted scale that may be negative.

Knows bitsandbytes' levels and packing and how a scale is fitted; knows nothing about files or modules. `docs/format.md`
specifies what is stored.

Levels and their normal-quantile construction: Dettmers et al., QLoRA (arXiv 2305.14314).

Fit of one group `w[64]`: for codes chosen at a trial scale, with `y = LEVELS[codes]`, the best scale is `a/b` where
`a = Σ w·y` and `b = Σ y²`, and it leaves the error `Σ w² - a²/b`. So each trial is a table lookup and two sums, the
trial with the largest `a²/b` wins, the codes are chosen once more at the winner's `a/b` (a refit), and finally for the
scale rounded to bf16.

    w ─► w / max|w| ─► [six trials: ±0.90 ±0.97 ±1.04] ─► winner's a/b ─► refit ─► bf16 ─► codes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded, chunk_groups, encode_in_chunks, finite_absmax

LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)

TRIALS = (0.90, -0.90, 0.97, -0.97, 1.04, -1.04)
"""Trial scales in units of the group's absolute maximum. Measured: a grid of 160 gains just 0.02 points of RMSE."""

TINY = 2.0**-117
"""A group with no larger magnitude is stored as zeros: bins per unit divided by it might not be finite."""

BINS = 4096
REACH = 1.25
"""Scaled weights outside ±REACH share the outermost bin, where every level but ±1 is far away."""
_BINS_PER_UNIT = BINS / 2 / REACH


@dataclass(frozen=True, slots=True)
class _Tables:
    """Lookup tables over BINS equal bins of [-REACH, REACH], for one device.

    Attributes:
        nearest: fp32 `[BINS]`: level nearest to the centre of the bin.
        base: U8 `[BINS]`: code at the lower end of the bin.
        border: fp32 `[BINS]`: midpoint between two levels that lies in the bin, above which the code is one higher.
        pairs: I64 `[256]`: the two fp32 levels of a byte of codes, as one word.
        middle: fp32 `[]`: bin of zero.
    """

    middle: Tensor
    nearest: Tensor
    base: Tensor
    border: Tensor
    pairs: Tensor


@cache
def _tables(device: torch.device) -> _Tables:
    """Kept for good: captured CUDA graphs read them by their addresses."""
    levels = torch.tensor(LEVELS, dtype=torch.float32)
    midpoints = (levels[1:] + levels[:-1]) / 2
    centres = (torch.arange(BINS, dtype=torch.float32) + 0.5 - BINS / 2) * (2 * REACH / BINS)
    base = torch.zeros(BINS, dtype=torch.uint8)
    border = torch.full((BINS,), torch.inf, dtype=torch.float32)
    for midpoint, bin_ in zip(midpoints, _bins(midpoints * _BINS_PER_UNIT + BINS / 2).tolist(), strict=True):
        base[bin_ + 1 :] += 1
        border[bin_] = midpoint
    byte = torch.arange(256)
    pairs = torch.stack([levels[byte >> 4], levels[byte & 15]], dim=-1).contiguous().view(torch.int64)
    return _Tables(
        middle=torch.tensor(BINS / 2, dtype=torch.float32, device=device),
        nearest=levels[torch.bucketize(centres, midpoints)].to(device),
        base=base.to(device),
        border=border.to(device),
        pairs=pairs.view(256).to(device),
    )


def _bins(place: Tensor) -> Tensor:
    """Bin of each weight from its place in units of bins, as int32 in the memory of `place`, which is overwritten."""
    place.clamp_(0, BINS - 1)
    return place.view(torch.int32).copy_(place)


class _Fitter:
    """Fits and encodes groups `[n, 64]`, n up to a limit, in buffers that are reused."""

    def __init__(self, limit: int, device: torch.device) -> None:
        self.tables = _tables(device)
        self.unit = torch.empty(limit, GROUP, dtype=torch.float32, device=device)
        self.work = torch.empty_like(self.unit)
        self.level = torch.empty_like(self.unit)

    def encode(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Codes U8 `[n, 32]` and scales bf16 `[n]` of groups `[n, 64]` in fp32.

        Raises:
            NotFiniteError: a value is not finite.
        """
        absmax = finite_absmax(weights)
        unit = self.unit[: len(weights)]
        torch.mul(weights, torch.where(absmax > TINY, _BINS_PER_UNIT / absmax, 0.0).unsqueeze(-1), out=unit)
        gain = torch.zeros_like(absmax)
        scale = torch.zeros_like(absmax)
        for trial in TRIALS:
            a, b = self._sums(unit, 1 / trial)
            trial_gain = a * a / b
            better = trial_gain > gain
            gain = torch.where(better, trial_gain, gain)
            scale = torch.where(better, a / b, scale)
        a, b = self._sums(unit, _reciprocal(scale / _BINS_PER_UNIT).unsqueeze(-1))
        scale = torch.where(b > 0, a / b, 0.0).mul_(absmax / _BINS_PER_UNIT)
        stored = scale.clamp_(*_BF16_RANGE).to(torch.bfloat16)
        torch.mul(weights, _reciprocal(stored.float()).unsqueeze(-1), out=unit)
        codes = self._codes(unit)
        return _packed(codes), stored

    def _sums(self, unit: Tensor, inverse: float | Tensor) -> tuple[Tensor, Tensor]:
        """Sums `a`, `b` `[n]` of a trial: `unit` holds groups over their maximum, in bins; `inverse` is 1 / trial."""
        work, level = self.work[: len(unit)], self.level[: len(unit)]
        if isinstance(inverse, Tensor):
            torch.addcmul(self.tables.middle, unit, inverse, out=work)
        else:
            torch.add(self.tables.middle, unit, alpha=inverse, out=work)
        torch.index_select(self.tables.nearest, 0, _bins(work).view(-1), out=level.view(-1))
        a = torch.mul(unit, level, out=work).sum(dim=-1)
        return a, torch.mul(level, level, out=work).sum(dim=-1)

    def _codes(self, scaled: Tensor) -> Tensor:
        """Code U8 `[n, 64]` of the level nearest to each scaled weight: exact, not by bin."""
        work, border = self.work[: len(scaled)], self.level[: len(scaled)]
        bins = _bins(torch.add(self.tables.middle, scaled, alpha=_BINS_PER_UNIT, out=work)).view(-1)
        torch.index_select(self.tables.border, 0, bins, out=border.view(-1))
        return torch.index_select(self.tables.base, 0, bins).view(scaled.shape).add_(scaled > border)


def _packed(codes: Tensor) -> Tensor:
    """Two codes per byte, the first in the high four bits: U8 `[n, 64]` to `[n, 32]`."""
    pairs = codes.view(torch.int16)  # of a little-endian machine, as files are read
    return ((pairs << 4) | (pairs >> 8)).to(torch.uint8)


_BF16_RANGE = (torch.finfo(torch.bfloat16).min, torch.finfo(torch.bfloat16).max)


def _reciprocal(scale: Tensor) -> Tensor:
    return torch.where(scale.abs() > TINY, 1 / scale, 0.0)


class Nf4:
    """NormalFloat4 with groups of 64 and a bf16 scale: 4.25 bits per weight."""

    name = "nf4"
    codes_dtype = torch.uint8
    codes_per_byte = 2
    error_limit = 0.13

    def encode(self, weight: Tensor) -> Encoded:
        """See `Codec.encode`. Deterministic on a device."""
        fitter = _Fitter(min(chunk_groups(weight.device), weight.numel() // GROUP), weight.device)
        return encode_in_chunks(self, weight, fitter.encode)

    def decode(self, encoded: Encoded, dtype: torch.dtype = torch.float32) -> Tensor:
        """See `Codec.decode`. The same bits as bitsandbytes' `dequantize_4bit` with the scales as fp32 `absmax`."""
        codes = encoded.codes
        pairs = torch.index_select(_tables(codes.device).pairs, 0, codes.reshape(-1).int())
        levels = pairs.view(torch.float32).view(*encoded.scales.shape, GROUP)
        levels.mul_(encoded.scales.float().unsqueeze(-1))
        return levels.view(*codes.shape[:-1], -1).to(dtype)
