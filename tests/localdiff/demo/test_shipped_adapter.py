"""The adapter that ships: small, for the demo model as it ships, and what it is for."""

from __future__ import annotations

from localdiff.adapter_reference import SHIPPED, shipped_adapters
from localdiff.demo.evaluate import evaluate
from localdiff.engine import Engine


def test_it_is_small_and_has_a_name() -> None:
    assert shipped_adapters() == ["sudoku"]
    assert sum(path.stat().st_size for path in (SHIPPED / "sudoku").iterdir()) < 3e6


def test_it_solves_puzzles_that_the_demo_model_does_not() -> None:
    alone, tuned = (
        evaluate(Engine.load("demo", device="cpu", dtype="fp32", adapter=adapter), "sudoku9", prompts=count, seeds=(0,))
        for adapter, count in ((None, 3), ("sudoku", 10))  # alone it seldom stops
    )
    # A few puzzles say little about the rate, which docs/sudoku.md has.
    assert alone.accuracy == 0.0
    assert tuned.accuracy >= 0.5
