"""The bounds of a step on cards that nobody has timed: those of the pages, and what int8 activations change."""

from __future__ import annotations

import re

import pytest

from tests.bench.step_bounds import CARDS, ROUNDED, WAYS, bounds
from tests.screens.processes import ROOT

CHOSEN = ("RTX 5090", "RTX 4090", "RTX 3090")
"""In the order of `docs/performance.md`."""


def test_the_page_on_performance_has_them() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    for card in CHOSEN:
        row = re.search(rf"^\| {card} \| (\d+) ms \| (\d+) ms \| (\d+) ms \|$", page, re.MULTILINE)
        expected = [
            f"{1e3 * sum(bounds(CARDS[card], rounded=rounded, sparse=sparse).values()):.0f}"
            for rounded, sparse in WAYS.values()
        ]
        assert row is not None and list(row.groups()) == expected


@pytest.mark.parametrize("card", CARDS)
def test_int8_activations_change_their_parts_alone(card: str) -> None:
    plain, rounded = (bounds(CARDS[card], rounded=rounded, sparse=False) for rounded in (False, True))
    assert plain.keys() == rounded.keys() > set(ROUNDED)
    assert {part for part in plain if rounded[part] != plain[part]} <= set(ROUNDED)
    assert all(rounded[part] <= plain[part] for part in plain)
    assert rounded["attention projections"] < plain["attention projections"]


@pytest.mark.parametrize("card", CARDS)
def test_sparse_self_conditioning_changes_itself_alone(card: str) -> None:
    exact, sparse = (bounds(CARDS[card], rounded=False, sparse=sparse) for sparse in (False, True))
    assert {part for part in exact if sparse[part] != exact[part]} == {"self-conditioning"}
    # Exact, it multiplies all embeddings for each row, as the head does; sparse, hardly any.
    assert exact["self-conditioning"] - sparse["self-conditioning"] == pytest.approx(exact["head"], rel=0.1)
