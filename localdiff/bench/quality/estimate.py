"""Means with 95 % intervals.

There is one value per question: several seeds of the same question are averaged before, because they are not
independent. Knows numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

_RULE = 3
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean, and half of its 95 % interval; `margin` is infinite where the values are too few to say anything."""

    mean: float
    margin: float
    count: int

    def scaled(self, factor: float) -> Estimate:
        """The same in other units."""
        return Estimate(mean=self.mean * factor, margin=self.margin * abs(factor), count=self.count)


def estimate(values: Sequence[float], *, largest: float | None = None) -> Estimate:
    """Mean of independent values, with Student's interval.

    Args:
        values: at least one.
        largest: the most that a single value can be, where that is known; a margin as wide as that says nothing. If
            all values are equal, a deviation of zero would claim too much: then the margin is by the rule of three,
            `3 / n` of the largest.
    """
    count, mean = len(values), fmean(values)
    deviation = stdev(values, mean) if count > 1 else 0.0
    if deviation == 0 and count <= _RULE:
        return Estimate(mean=mean, margin=math.inf, count=count)
    if deviation == 0:
        margin = 0.0 if largest is None else largest * _RULE / count
    else:
        margin = _student(count - 1) * deviation / math.sqrt(count)
    says_nothing = largest is not None and margin >= largest
    return Estimate(mean=mean, margin=math.inf if says_nothing else margin, count=count)


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's distribution (Abramowitz and Stegun 26.7.5, within 1 % from 3 degrees on)."""
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    exact = {1: 12.706, 2: 4.303}
    series = z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
    return exact.get(freedom, series)
