"""Rates, and what may be predicted from them."""

from __future__ import annotations

import pytest

from localdiff.ui.rate import Rate
from tests.fakes.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def go(rate: Rate, clock: FakeClock, seconds: float, speed: float, done: float = 0) -> float:
    """Work at a steady speed in steps of a tenth of a second."""
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        done += speed / 10
        rate.see(round(done))
    return done


def test_a_steady_rate_foretells_the_end(clock: FakeClock) -> None:
    rate = Rate(clock)
    done = go(rate, clock, 10, 50e6)
    assert rate.per_second() == pytest.approx(50e6, rel=0.01)
    assert rate.seconds_left(round(done) + 100_000_000) == pytest.approx(2, rel=0.02)


def test_nothing_is_foretold_at_first(clock: FakeClock) -> None:
    rate = Rate(clock)
    assert rate.per_second() is None
    clock.now += 1
    assert rate.per_second() == 0
    clock.now -= 1
    go(rate, clock, 2.5, 50e6)
    assert rate.seconds_left(10**9) is None
    go(rate, clock, 1, 50e6, 125e6)
    assert rate.seconds_left(10**9) is not None


def test_nothing_is_foretold_from_an_unsteady_rate(clock: FakeClock) -> None:
    rate = Rate(clock)
    done = go(rate, clock, 20, 50e6)
    done = go(rate, clock, 5, 5e6, done)
    assert rate.seconds_left(10**12) is None
    done = go(rate, clock, 40, 5e6, done)
    assert rate.seconds_left(round(done) + 50_000_000) == pytest.approx(10, rel=0.05)


def test_what_stands_still_has_no_end_in_sight(clock: FakeClock) -> None:
    rate = Rate(clock)
    go(rate, clock, 20, 50e6)
    clock.now += 6
    assert rate.seconds_left(10**12) is None
    clock.now += 60
    assert rate.per_second() == 0


def test_only_the_last_half_minute_counts(clock: FakeClock) -> None:
    rate = Rate(clock)
    done = go(rate, clock, 100, 1e6)
    go(rate, clock, 31, 9e6, done)
    assert rate.per_second() == pytest.approx(9e6, rel=0.01)


def test_what_is_done_again_starts_the_rate_anew(clock: FakeClock) -> None:
    rate = Rate(clock)
    go(rate, clock, 10, 50e6)
    rate.see(0)
    go(rate, clock, 1, 20e6)
    assert rate.per_second() == pytest.approx(20e6, rel=0.01)


def test_what_is_done_is_not_awaited(clock: FakeClock) -> None:
    rate = Rate(clock)
    done = go(rate, clock, 10, 50e6)
    assert rate.seconds_left(round(done) - 1) == 0
