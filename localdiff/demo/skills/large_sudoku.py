"""The Sudoku skills that an adapter is trained on: 6x6 and 9x9, a grid as one string. Held out by the solved grid.

Not part of the demo model's own training. Puzzles are solved by singles alone (`grid.solve_by_singles`), which is what
newspapers call easy. They come from `PATTERNS` puzzles per split, made once, and a random symmetry of each.
"""

from __future__ import annotations

from functools import cache
from random import Random

from localdiff.demo.skills.example import Example, Sampler, Split, ask, draw
from localdiff.demo.skills.grid import Shape, make_puzzle, random_solution, symmetry, transform

SHAPES: dict[str, Shape] = {"sudoku6": Shape(rows=2, columns=3), "sudoku9": Shape(rows=3, columns=3)}
EMPTY_CELLS: dict[str, tuple[int, int]] = {"sudoku6": (12, 20), "sudoku9": (30, 45)}
"""Fewest and most empty cells of a puzzle, drawn uniformly; sometimes fewer can be emptied."""
PATTERNS = 250
PHRASINGS: tuple[str, ...] = (
    "Solve this {side}x{side} Sudoku: {puzzle}",
    "Solve the Sudoku {puzzle}",
    "Sudoku: {puzzle}",
)


@cache
def patterns(name: str, split: Split) -> tuple[tuple[str, str], ...]:
    """(puzzle, solution) pairs to draw from, the same at every call."""
    shape, rng = SHAPES[name], Random(f"{name} {split}")
    pairs = []
    for _ in range(PATTERNS):
        solution = random_solution(shape, rng)
        pairs.append((make_puzzle(shape, rng, solution, rng.randint(*EMPTY_CELLS[name])), solution))
    return tuple(pairs)


def key_of(name: str, solution: str) -> str:
    return f"{name}:{solution}"


def _sampler(name: str) -> Sampler:
    def sample(rng: Random, split: Split) -> Example:
        """Draw a pattern and a symmetry that puts its solution on the wanted side of the split, and a phrasing."""

        def make(rng: Random) -> tuple[str, str]:
            change = symmetry(SHAPES[name], rng)
            puzzle, solution = rng.choice(patterns(name, split))
            return transform(puzzle, change), transform(solution, change)

        puzzle, solution = draw(rng, split, make, lambda pair: key_of(name, pair[1]))
        prompt = rng.choice(PHRASINGS).format(side=SHAPES[name].side, puzzle=puzzle)
        return ask(name, prompt, solution, key_of(name, solution))

    return sample


LARGE_SUDOKU: dict[str, Sampler] = {name: _sampler(name) for name in SHAPES}
