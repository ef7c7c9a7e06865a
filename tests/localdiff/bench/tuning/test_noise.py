"""The search over steps whose timings vary as measured ones do: how often it takes a tile that saves nothing."""

from __future__ import annotations

import pytest

from tests.bench.tuning_noise import PRODUCTS, searches
from tests.localdiff.bench.tuning.steps import BEST, WIDE


@pytest.mark.parametrize(("noise", "most"), [(0.003, 0.12), (0.01, 0.3)])
def test_few_products_get_a_tile_that_saves_nothing(noise: float, most: float) -> None:
    several = searches(100, noise, {})
    assert sum(map(len, several)) <= most * PRODUCTS * len(several)


@pytest.mark.parametrize(("noise", "gain"), [(0.003, 0.015), (0.01, 0.05)])
def test_a_tile_that_saves_more_than_the_noise_is_found(noise: float, gain: float) -> None:
    several = searches(100, noise, {(WIDE, BEST): gain})
    assert sum(WIDE in taken for taken in several) >= 0.9 * len(several)
