"""The Sudoku skill: 4x4 puzzles with one solution. Held out by the solved grid, of which there are 288.

Knows grids as 16 characters, rows in order, a period for an empty cell. In prompts and answers the four rows
are separated by spaces: every cell is a token of its own at a fixed place.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from random import Random

from localdiff.demo.skills.example import Example, Split, ask, casual, draw
from localdiff.demo.skills.grid import EMPTY, Shape

NAME = "sudoku"
SHAPE = Shape(rows=2, columns=2)
SIDE, DIGITS, PEERS = SHAPE.side, SHAPE.digits, SHAPE.peers
CELLS = SIDE * SIDE
FEWEST_EMPTY, MOST_EMPTY = 4, 10
PHRASINGS: tuple[str, ...] = (
    "Solve this 4x4 Sudoku: {rows}",
    "Solve the Sudoku {rows}",
    "Sudoku: {rows}",
    "Please solve this Sudoku: {rows}",
    "Fill in the empty cells: {rows}",
    "Can you solve this puzzle? {rows}",
)


def solutions(grid: str) -> Iterator[str]:
    """All solved grids that keep the clues of `grid` (16 characters), by depth-first search."""
    cell = grid.find(EMPTY)
    if cell < 0:
        if all(grid[cell] not in {grid[peer] for peer in PEERS[cell]} for cell in range(CELLS)):
            yield grid
        return
    peer_digits = {grid[peer] for peer in PEERS[cell]}
    for digit in DIGITS:
        if digit not in peer_digits:
            yield from solutions(grid[:cell] + digit + grid[cell + 1 :])


@cache
def solved_grids() -> tuple[str, ...]:
    """The 288 solved grids, in lexicographic order."""
    return tuple(solutions(EMPTY * CELLS))


def make_puzzle(rng: Random, grid: str) -> str:
    """Empty cells of a solved grid in random order while the solution stays unique."""
    empty_cells = rng.randint(FEWEST_EMPTY, MOST_EMPTY)
    puzzle = grid
    for cell in rng.sample(range(CELLS), CELLS):
        emptied = puzzle[:cell] + EMPTY + puzzle[cell + 1 :]
        if len(list(islice(solutions(emptied), 2))) == 1:
            puzzle = emptied
        if puzzle.count(EMPTY) == empty_cells:
            break
    return puzzle


def rows_of(grid: str) -> str:
    """16 characters as four rows with spaces between them."""
    return " ".join(grid[start : start + SIDE] for start in range(0, CELLS, SIDE))


def key_of(grid: str) -> str:
    return f"{NAME}:{grid}"


def sample(rng: Random, split: Split) -> Example:
    """Draw a solved grid of the split, empty some of its cells, and choose a phrasing."""
    grid = draw(rng, split, lambda rng: rng.choice(solved_grids()), key_of)
    # The rows hold periods, which the casual spelling of a prompt must not cut.
    prompt = casual(rng, rng.choice(PHRASINGS)).format(rows=rows_of(make_puzzle(rng, grid)))
    return ask(NAME, prompt, rows_of(grid), key_of(grid))
