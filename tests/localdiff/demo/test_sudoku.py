"""The Sudoku generator and its search for solutions."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from localdiff.demo.skills import sudoku


def test_there_are_288_solved_grids_and_all_are_valid() -> None:
    grids = sudoku.solved_grids()
    assert len(set(grids)) == len(grids) == 288
    for grid in grids:
        rows = [grid[start : start + 4] for start in range(0, 16, 4)]
        columns = [grid[start::4] for start in range(4)]
        boxes = [grid[c] + grid[c + 1] + grid[c + 4] + grid[c + 5] for c in (0, 2, 8, 10)]
        assert all(sorted(unit) == list("1234") for unit in rows + columns + boxes)


def test_peers_are_the_other_cells_of_row_column_and_box() -> None:
    assert sudoku.PEERS[0] == {1, 2, 3, 4, 5, 8, 12}
    assert all(len(peers) == 7 for peers in sudoku.PEERS)


@given(st.integers(0, 287), st.sets(st.integers(0, 15)))
def test_the_search_finds_every_solved_grid_that_keeps_the_clues(index: int, emptied: set[int]) -> None:
    grids = sudoku.solved_grids()
    puzzle = "".join("." if cell in emptied else digit for cell, digit in enumerate(grids[index]))
    kept = set(range(16)) - emptied
    assert list(sudoku.solutions(puzzle)) == [
        grid for grid in grids if all(grid[cell] == puzzle[cell] for cell in kept)
    ]


def test_a_puzzle_that_breaks_a_rule_has_no_solution() -> None:
    puzzle = "11" + "." * 14
    assert list(sudoku.solutions(puzzle)) == []
    assert list(sudoku.solutions("1" * 16)) == []


def test_made_puzzles_have_one_solution_and_a_few_to_many_empty_cells() -> None:
    rng = Random(1)
    empties = set()
    for _ in range(400):
        grid = rng.choice(sudoku.solved_grids())
        puzzle = sudoku.make_puzzle(rng, grid)
        assert list(sudoku.solutions(puzzle)) == [grid]
        empties.add(puzzle.count("."))
    assert empties == set(range(sudoku.FEWEST_EMPTY, sudoku.MOST_EMPTY + 1))


def test_the_prompt_shows_the_clues_in_the_layout_of_the_answer() -> None:
    rng = Random(2)
    for _ in range(100):
        example = sudoku.sample(rng, "train")
        rows = example.prompt[-19:]
        assert [len(row) for row in rows.split(" ")] == [4, 4, 4, 4]
        assert all(clue in (".", cell) for clue, cell in zip(rows, example.answer, strict=True))
