"""Means with 95 % intervals.

There is one value per question: several seeds of the same question are averaged before, because they are not
independent. Knows numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean, and half of its 95 % interval; `margin` is infinite where there are fewer than two values."""

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
        largest: the most that a single value can be, where that is known; no margin is wider. If all values are equal,
            a deviation of zero would claim too much: then the margin is by the rule of three, `3 / n` of the largest.
    """
    count, mean = len(values), fmean(values)
    if count < 2:
        return Estimate(mean=mean, margin=math.inf, count=count)
    deviation = stdev(values, mean)
    if deviation == 0 and largest is not None:
        return Estimate(mean=mean, margin=largest * min(1.0, 3 / count), count=count)
    margin = _student(count - 1) * deviation / math.sqrt(count)
    return Estimate(mean=mean, margin=margin if largest is None else min(margin, largest), count=count)


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
