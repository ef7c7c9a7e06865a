"""Sudoku grids of any shape: which cells see each other, random solved grids, puzzles, and how a puzzle is solved.

Knows grids as strings, rows in order, a period for an empty cell; knows no prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random

EMPTY = "."


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A square grid of boxes.

    Attributes:
        rows, columns: of one box. A side has `rows · columns` cells, and as many digits are in use.
    """

    rows: int
    columns: int

    @property
    def side(self) -> int:
        """Cells in a row, a column or a box."""
        return self.rows * self.columns

    @property
    def digits(self) -> str:
        """The digits in use, from 1 on."""
        return "123456789"[: self.side]

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """The cells of each row, each column and each box; every unit holds each digit once."""
        side, lines = self.side, range(self.side)
        rows = [tuple(row * side + column for column in lines) for row in lines]
        columns = [tuple(row * side + column for row in lines) for column in lines]
        boxes = [
            tuple((top + row) * side + left + column for row in range(self.rows) for column in range(self.columns))
            for top in range(0, side, self.rows)
            for left in range(0, side, self.columns)
        ]
        return (*rows, *columns, *boxes)

    @cached_property
    def peers(self) -> tuple[frozenset[int], ...]:
        """For each cell the others that share a unit with it."""
        return tuple(
            frozenset(cell for unit in self.units if at in unit for cell in unit if cell != at)
            for at in range(self.side**2)
        )


def solve_by_singles(shape: Shape, puzzle: str) -> str:
    """Fills in what follows step by step, without guessing; cells that do not follow stay empty.

    A cell follows when one digit is left for it (a naked single), or when it is the only place left for a digit in one
    of its units (a hidden single). A puzzle that is solved this way has exactly one solution.
    """
    grid = list(puzzle)
    options = {
        cell: set(shape.digits) - {grid[peer] for peer in shape.peers[cell]}
        for cell, digit in enumerate(grid)
        if digit == EMPTY
    }
    singles = [cell for cell, digits in options.items() if len(digits) == 1]
    while singles or (singles := _hidden_singles(shape, options)):
        cell = singles.pop()
        if cell not in options:
            continue
        digits = options.pop(cell)
        if not digits:
            break  # a contradiction: what was filled in stays, and is not a solution
        (grid[cell],) = digits
        for peer in shape.peers[cell] & options.keys():
            options[peer] -= digits
            if len(options[peer]) == 1:
                singles.append(peer)
    return "".join(grid)


def _hidden_singles(shape: Shape, options: dict[int, set[str]]) -> list[int]:
    """Cells that are the only place for a digit in a unit, with that digit as their only option; the first found."""
    for unit in shape.units:
        for digit in shape.digits:
            places = [cell for cell in unit if digit in options.get(cell, ())]
            if len(places) == 1:
                options[places[0]] = {digit}
                return places
    return []


def random_solution(shape: Shape, rng: Random) -> str:
    """A solved grid, by depth-first search over the cell with the fewest options, digits in random order."""
    grid = [EMPTY] * shape.side**2
    options = {cell: set(shape.digits) for cell in range(len(grid))}

    def fill() -> bool:
        if not options:
            return True
        cell = min(options, key=lambda cell: (len(options[cell]), cell))
        digits = options.pop(cell)
        for digit in rng.sample(sorted(digits), len(digits)):
            narrowed = [peer for peer in shape.peers[cell] & options.keys() if digit in options[peer]]
            for peer in narrowed:
                options[peer].remove(digit)
            grid[cell] = digit
            if fill():
                return True
            for peer in narrowed:
                options[peer].add(digit)
        options[cell] = digits
        return False

    fill()
    return "".join(grid)


def make_puzzle(shape: Shape, rng: Random, grid: str, empty: int) -> str:
    """Empties up to `empty` cells of a solved grid in random order, as long as singles solve it."""
    puzzle = grid
    for cell in rng.sample(range(len(grid)), len(grid)):
        if puzzle.count(EMPTY) == empty:
            break
        emptied = puzzle[:cell] + EMPTY + puzzle[cell + 1 :]
        if solve_by_singles(shape, emptied) == grid:
            puzzle = emptied
    return puzzle


def symmetry(shape: Shape, rng: Random) -> tuple[list[int], dict[str, str]]:
    """A random symmetry of Sudoku: for each cell of the new grid the cell it comes from, and new names of the digits.

    Bands, rows within a band, stacks and columns within a stack are permuted; digits are renamed. A puzzle keeps its
    difficulty and the number of its solutions.
    """

    def lines(groups: int, size: int) -> list[int]:
        return [
            group * size + line for group in rng.sample(range(groups), groups) for line in rng.sample(range(size), size)
        ]

    rows, columns = lines(shape.columns, shape.rows), lines(shape.rows, shape.columns)
    names = dict(zip(shape.digits, rng.sample(shape.digits, shape.side), strict=True)) | {EMPTY: EMPTY}
    return [row * shape.side + column for row in rows for column in columns], names


def transform(grid: str, symmetry: tuple[list[int], dict[str, str]]) -> str:
    """A grid or a puzzle under a symmetry."""
    cells, names = symmetry
    return "".join(names[grid[cell]] for cell in cells)
