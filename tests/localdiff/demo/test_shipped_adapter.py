"""The adapter that ships is small, made for the demo model as it ships, and good at its puzzles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localdiff.checkpoints.adapter_reference import SHIPPED, shipped_adapters
from localdiff.demo.evaluate import evaluate
from localdiff.demo.skills import large_sudoku
from localdiff.engine import Engine


@pytest.fixture
def few_patterns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Making all patterns that puzzles are drawn from would take longer than solving a few puzzles."""
    monkeypatch.setattr(large_sudoku, "PATTERNS", 20)
    large_sudoku.patterns.cache_clear()
    yield
    large_sudoku.patterns.cache_clear()


def test_it_is_small_and_has_a_name() -> None:
    assert shipped_adapters() == ["sudoku"]
    assert sum(path.stat().st_size for path in (SHIPPED / "sudoku").iterdir()) < 3e6


@pytest.mark.usefixtures("few_patterns")
def test_it_solves_puzzles_that_the_demo_model_does_not() -> None:
    alone, tuned = (
        evaluate(Engine.load("demo", device="cpu", dtype="fp32", adapter=adapter), "sudoku9", prompts=count, seeds=(0,))
        for adapter, count in ((None, 1), ("sudoku", 4))  # alone it seldom stops
    )
    # A few puzzles say little about the rate; docs/sudoku.md has it.
    assert alone.accuracy == 0.0
    assert tuned.accuracy >= 0.5
