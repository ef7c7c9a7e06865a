"""Means and intervals, against tables and by simulation."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from localdiff.demo.estimate import Estimate, estimate


@pytest.mark.parametrize(("count", "point"), [(10, 2.262), (11, 2.228), (31, 2.042), (1001, 1.962)])
def test_the_interval_is_students(count: int, point: float) -> None:
    values = [0.0] * (count - 1) + [1.0]
    deviation = math.sqrt((1 - 1 / count) / (count - 1))
    assert estimate(values).margin == pytest.approx(point * deviation / math.sqrt(count), rel=0.001)
    assert estimate(values).mean == pytest.approx(1 / count)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(0)
    found = [estimate([rng.gauss(3.0, 2.0) for _ in range(10)]) for _ in range(4000)]
    covered = sum(abs(each.mean - 3.0) < each.margin for each in found) / len(found)
    assert covered == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("largest", [None, 1.0])
def test_a_few_values_have_no_interval(largest: float | None) -> None:
    assert estimate([0.3], largest=largest) == Estimate(mean=0.3, margin=math.inf, count=1)
    for values in ([0.0, 1.0], [1.0] * 9, [0.5, 0.4, 0.5] * 3):
        assert math.isinf(estimate(values, largest=largest).margin)
    assert math.isfinite(estimate([0.0, 1.0] * 5, largest=largest).margin)


def test_values_that_never_differ_promise_no_certainty() -> None:
    assert estimate([0.0] * 100, largest=1.0).margin == 0.03
    assert estimate([1.0] * 10, largest=1.0).margin == 0.3
    assert math.isinf(estimate([0.5] * 100).margin)
    assert fmean([8 / 11] * 59) != 8 / 11
    assert math.isinf(estimate([8 / 11] * 59).margin)
    assert estimate([8 / 11] * 59, largest=1.0).margin == 3 / 59


def test_other_units() -> None:
    assert Estimate(mean=-0.02, margin=0.01, count=9).scaled(100) == Estimate(mean=-2.0, margin=1.0, count=9)
    assert Estimate(mean=1.0, margin=0.5, count=9).scaled(-2).margin == 1.0
