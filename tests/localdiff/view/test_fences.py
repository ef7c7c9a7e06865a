"""Where blocks of code begin and end."""

from __future__ import annotations

import pytest

from localdiff.view.fences import Fences


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\n```\nb\n```\nc", "b"),
        ("```py\nb", "b"),
        ("````\n```\nb\n```\n````\nc", "```|b|```"),
        ("```\nb\n`````\nc", "b"),
        ("~~~\n```\n~~~ b\n~~~~\nc", "```|~~~ b"),
        ("```a``` b\nc", ""),
        ("``\nb\n``", ""),
        ("1. a\n\n     ```\n     b\n     ```\nc", "     b"),
    ],
)
def test_lines_of_code(text: str, code: str) -> None:
    fences = Fences()
    lines = [line for line in text.split("\n") if not fences.take(line) and fences.is_open]
    assert "|".join(lines) == code
