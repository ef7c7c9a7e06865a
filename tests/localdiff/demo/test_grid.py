"""Sudoku grids of every shape: units, what follows without a guess, random solutions, puzzles, symmetries."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.demo.skills import sudoku
from localdiff.demo.skills.grid import (
    EMPTY,
    Shape,
    make_puzzle,
    random_solution,
    solve_by_singles,
    symmetry,
    transform,
)

FOUR, SIX, NINE = Shape(rows=2, columns=2), Shape(rows=2, columns=3), Shape(rows=3, columns=3)
SHAPES = pytest.mark.parametrize("shape", [FOUR, SIX, NINE])


def is_solved(shape: Shape, grid: str) -> bool:
    """Whether every unit holds every digit."""
    digits = set(shape.digits)
    return len(grid) == shape.side**2 and all({grid[cell] for cell in unit} == digits for unit in shape.units)


@SHAPES
def test_every_unit_has_a_cell_for_each_digit_and_every_cell_three_units(shape: Shape) -> None:
    assert len(shape.units) == 3 * shape.side
    assert all(len(set(unit)) == shape.side for unit in shape.units)
    for cell in range(shape.side**2):
        assert sum(cell in unit for unit in shape.units) == 3
        assert cell not in shape.peers[cell]


def test_boxes_are_as_wide_as_they_say() -> None:
    assert SIX.units[-6] == (0, 1, 2, 6, 7, 8)
    assert NINE.units[-9] == (0, 1, 2, 9, 10, 11, 18, 19, 20)


def test_the_small_shape_has_the_solved_grids_of_the_small_skill() -> None:
    assert all(is_solved(FOUR, grid) for grid in sudoku.solved_grids())
    rng = Random(0)
    drawn = {random_solution(FOUR, rng) for _ in range(3000)}
    assert drawn == set(sudoku.solved_grids())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), empty=st.integers(0, 22))
def test_puzzles_follow_to_the_end(seed: int, empty: int) -> None:
    rng = Random(seed)
    grid = random_solution(SIX, rng)
    puzzle = make_puzzle(SIX, rng, grid, empty)
    assert puzzle.count(EMPTY) <= empty
    assert all(clue in (EMPTY, cell) for clue, cell in zip(puzzle, grid, strict=True))
    assert solve_by_singles(SIX, puzzle) == grid


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 287), st.sets(st.integers(0, 15)))
def test_what_follows_is_in_every_solution(index: int, emptied: set[int]) -> None:
    grid = sudoku.solved_grids()[index]
    puzzle = "".join(EMPTY if cell in emptied else digit for cell, digit in enumerate(grid))
    found = solve_by_singles(FOUR, puzzle)
    for solution in sudoku.solutions(puzzle):
        assert all(cell in (EMPTY, right) for cell, right in zip(found, solution, strict=True))


def test_a_hidden_single_is_found() -> None:
    # No cell has a single option, but the 1 of the first row has one place: column 3.
    puzzle = "...." + "..1." + "1..." + "...."
    assert solve_by_singles(FOUR, puzzle)[3] == EMPTY  # box 2 has its 1 already
    assert solve_by_singles(FOUR, puzzle)[:2] == ".1"


def test_a_contradiction_ends_without_a_solution() -> None:
    found = solve_by_singles(FOUR, "123." + "...4" + "........")
    assert not is_solved(FOUR, found)


@SHAPES
def test_a_symmetry_keeps_what_a_puzzle_is(shape: Shape) -> None:
    rng = Random(2)
    grid = random_solution(shape, rng)
    puzzle = make_puzzle(shape, rng, grid, shape.side**2 // 3)
    seen = set()
    for _ in range(20):
        change = symmetry(shape, rng)
        other_puzzle, other_grid = transform(puzzle, change), transform(grid, change)
        assert is_solved(shape, other_grid)
        assert solve_by_singles(shape, other_puzzle) == other_grid
        assert other_puzzle.count(EMPTY) == puzzle.count(EMPTY)
        seen.add(other_grid)
    assert len(seen) > 10
