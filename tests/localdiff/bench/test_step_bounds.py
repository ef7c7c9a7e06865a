"""The bounds of a step on cards that nobody has timed: those of the pages, and what int8 activations change."""

from __future__ import annotations

import re

import pytest

from tests.bench.step_bounds import CARDS, ROUNDED, bounds
from tests.screens.processes import ROOT

CHOSEN = ("RTX 5090", "RTX 4090", "RTX 3090")
"""In the order of `docs/performance.md`."""


def test_the_page_on_performance_has_them() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    plain, rounded = (
        [f"{1e3 * sum(bounds(CARDS[card], rounded=rounded).values()):.0f}" for card in CHOSEN]
        for rounded in (False, True)
    )
    assert f"{plain[0]} ms for an RTX 5090, {plain[1]} for a 4090 and {plain[2]} for a 3090" in page
    found = re.search(r"four times as fast by their datasheets, (\d+), (\d+) and (\d+) ms", page)
    assert found is not None and list(found.groups()) == rounded


@pytest.mark.parametrize("card", CARDS)
def test_int8_activations_change_their_parts_alone(card: str) -> None:
    plain, rounded = (bounds(CARDS[card], rounded=rounded) for rounded in (False, True))
    assert plain.keys() == rounded.keys() > set(ROUNDED)
    assert {part for part in plain if rounded[part] != plain[part]} <= set(ROUNDED)
    assert all(rounded[part] <= plain[part] for part in plain)
    assert rounded["attention projections"] < plain["attention projections"]
