"""Scoring of answers, right or wrong: word for word, unless a skill has a rule of its own.

Knows examples and text; knows nothing about how the answer was made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from localdiff.demo.skills import Example, about, fields, story, sudoku
from localdiff.demo.skills.grid import EMPTY


def score(example: Example, answer_text: str) -> bool:
    """True if the text answers the example's last user turn."""
    return _RULES.get(example.skill, _exact)(example, answer_text)


def _exact(example: Example, answer: str) -> bool:
    return answer.strip() == example.answer


def _same_words(example: Example, answer: str) -> bool:
    return answer.split() == example.answer.split()


def _same_json(example: Example, answer: str) -> bool:
    """Equal when parsed, types included: `1` is not `true`, and `"31"` is not `31`."""
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):  # the latter for brackets that are nested too deeply
        return False
    return json.dumps(parsed, sort_keys=True) == json.dumps(json.loads(example.answer), sort_keys=True)


def _solves(example: Example, answer: str) -> bool:
    """Whether the answer is a valid grid in the layout of the prompt that keeps the clues."""
    row = f"[{sudoku.DIGITS}{re.escape(EMPTY)}]{{{sudoku.SIDE}}}"
    puzzle = re.search(rf"{row}(?: {row}){{{sudoku.SIDE - 1}}}", example.prompt)
    if puzzle is None:
        raise ValueError(f"no puzzle in {example.prompt!r}")
    grid = answer.strip().replace(" ", "")
    if len(grid) != sudoku.CELLS or answer.strip() != sudoku.rows_of(grid):
        return False
    clues = puzzle.group().replace(" ", "")
    keeps_clues = all(clue in (EMPTY, cell) for clue, cell in zip(clues, grid, strict=True))
    return keeps_clues and grid in sudoku.solved_grids()


_RULES: dict[str, Callable[[Example, str], bool]] = {
    fields.NAME: _same_json,
    sudoku.NAME: _solves,
    about.NAME: _same_words,
    story.NAME: _same_words,
}
