"""The puzzles that adapters are trained on: one solution each, and a split by the solved grid."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from localdiff.demo.scoring import score
from localdiff.demo.skills import SKILLS, TUNED_SKILLS, is_held_out, large_sudoku
from localdiff.demo.skills.grid import EMPTY, solve_by_singles

EVERY = pytest.mark.parametrize("name", sorted(TUNED_SKILLS))


@pytest.fixture(autouse=True)
def few_patterns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(large_sudoku, "PATTERNS", 12)
    large_sudoku.patterns.cache_clear()
    yield
    large_sudoku.patterns.cache_clear()


@EVERY
def test_a_puzzle_has_the_answer_as_its_only_solution(name: str) -> None:
    rng, shape = Random(0), large_sudoku.SHAPES[name]
    for split in ("train", "held_out"):
        for _ in range(10):
            example = TUNED_SKILLS[name](rng, split)
            puzzle = example.prompt.split()[-1]
            assert len(puzzle) == shape.side**2
            assert solve_by_singles(shape, puzzle) == example.answer
            assert puzzle.count(EMPTY) <= large_sudoku.EMPTY_CELLS[name][1]
            assert is_held_out(example.key) == (split == "held_out")


@EVERY
def test_patterns_are_the_same_at_every_call_and_others_in_each_split(name: str) -> None:
    first = large_sudoku.patterns(name, "train")
    large_sudoku.patterns.cache_clear()
    assert large_sudoku.patterns(name, "train") == first
    assert set(first).isdisjoint(large_sudoku.patterns(name, "held_out"))


def test_the_demo_model_is_not_trained_on_them() -> None:
    assert not set(SKILLS) & set(TUNED_SKILLS)


@EVERY
def test_only_the_solution_is_right(name: str) -> None:
    example = TUNED_SKILLS[name](Random(1), "held_out")
    assert score(example, example.answer)
    assert not score(example, example.answer[1] + example.answer[0] + example.answer[2:])
    assert not score(example, example.prompt.split()[-1])
    assert not score(example, "")
