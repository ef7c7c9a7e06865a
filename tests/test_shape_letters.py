"""Docstrings give shapes in letters, `[N, D]`; a module's own docstring says what each of its letters stands for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for package in ("localdiff", "quant") for path in (ROOT / package).rglob("*.py"))
_SIZE = r"(?:\d+ )?[A-Zdk](?: ?[/+*] ?\d*[A-Z]?)?|\d+|…|\.\.\."
_SHAPE = re.compile(rf"\[((?:{_SIZE})(?:, (?:{_SIZE}))*)\]")
_LETTERS = re.compile(r"Shape letters: (.*?)(?:\n\n|\Z)", re.DOTALL)


def undefined(source: str) -> set[str]:
    """Letters of shapes in the docstrings of a module that its own docstring does not define."""
    tree = ast.parse(source)
    found = _LETTERS.search(ast.get_docstring(tree) or "")
    known = set(re.findall(r"\b([A-Za-z])(?= )", found[1])) if found else set()
    return {letter for text in _docstrings(tree) for shape in _SHAPE.findall(text) for letter in _of(shape)} - known


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings, also those of attributes, which are string statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def _of(shape: str) -> list[str]:
    return [] if shape == "N/A" else re.findall("[A-Za-z]", shape)


def test_every_letter_of_a_shape_is_defined() -> None:
    missing = {str(path.relative_to(ROOT)): undefined(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {name: letters for name, letters in missing.items() if letters} == {}


@pytest.mark.parametrize(
    ("source", "letters"),
    [
        ('"""Shape letters: N rows, D width."""\ndef f():\n    """Rows [N, D]."""', set()),
        ('"""Shape letters: N rows."""\ndef f():\n    """Rows [N, D]."""', {"D"}),
        ('"""No letters."""\nCOUNT = 3\n"""Scales [E, K/64, N]."""', {"E", "K", "N"}),
        ('"""`[N/A]`, `[Errno 2]`, [a link](b) and int8 [2, 64] are no letters."""', set()),
    ],
)
def test_letters_are_found(source: str, letters: set[str]) -> None:
    assert undefined(source) == letters
