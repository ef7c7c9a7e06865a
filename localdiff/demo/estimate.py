"""Means with 95 % intervals.

There is one value per question: several seeds of the same question are averaged first, because they are not
independent. Fewer than ten questions have no interval, nor have values that never differ and have no known bounds.
Knows numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

ENOUGH = 10
"""Questions that an interval needs: with fewer, even a correct interval invites false conclusions."""
UNKNOWN = "?"
"""What stands for a margin that cannot be given."""
UNKNOWN_NOTE = f"± {UNKNOWN}: no interval, of fewer than {ENOUGH} questions or of values that never differ"
"""The note below a table with such a margin."""

_RULE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean, and half of its 95 % interval; `margin` is infinite where none can be given."""

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
        largest: the most that a single value can be, where that is known. If all values are equal, a deviation of zero
            would claim too much: then the margin is by the rule of three, `3 / n` of the largest, or unknown.
    """
    count, mean = len(values), fmean(values)
    if count < ENOUGH:
        margin = math.inf
    elif min(values) == max(values):  # their deviation may come out above zero if the mean is rounded
        margin = math.inf if largest is None else largest * _RULE / count
    else:
        margin = _student(count - 1) * stdev(values, mean) / math.sqrt(count)
    return Estimate(mean=mean, margin=margin, count=count)


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's distribution (Abramowitz and Stegun 26.7.5, within 0.1 % from 9 degrees on)."""
    z = NormalDist().inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
