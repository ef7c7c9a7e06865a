"""Rows as escape codes."""

from __future__ import annotations

import pytest

from localdiff.view.ansi import encode_row, encode_thought, sgr
from localdiff.view.style import PLAIN, SPACE, Span, Style, blank

RED, BLUE = Style(foreground=1), Style(foreground=32)


@pytest.mark.parametrize(
    ("style", "codes"),
    [
        (PLAIN, "0"),
        (Style(foreground=0), "0;30"),
        (Style(foreground=3), "0;33"),
        (Style(foreground=8), "0;90"),
        (Style(foreground=229), "0;38;5;229"),
        (Style(bold=True, dim=True, underline=True), "0;1;2;4"),
    ],
)
def test_codes(style: Style, codes: str) -> None:
    assert sgr(style) == f"\x1b[{codes}m"


def test_equal_styles_are_set_once_and_reset_at_the_end() -> None:
    row = (Span("a", 1, RED), SPACE, Span("b", 1, RED), Span("c", 1, BLUE))
    assert encode_row(row) == "\x1b[0;31ma b\x1b[0;38;5;32mc\x1b[0m"


def test_an_underline_does_not_run_on_over_a_space() -> None:
    row = (Span("a", 1, RED.underlined()), SPACE, Span("b", 1, RED.underlined()))
    assert encode_row(row) == "\x1b[0;4;31ma\x1b[0m \x1b[0;4;31mb\x1b[0m"


def test_blanks_at_the_end_are_not_sent() -> None:
    assert encode_row((Span("a", 1, PLAIN), blank(5), SPACE)) == "a"
    assert encode_row((blank(5),)) == ""


def test_thoughts_are_faint_and_safe() -> None:
    assert encode_thought("hm\n\n\x1b[2J\n") == "\x1b[0;2mhm\x1b[0m\n\n\x1b[0;2m▯[2J\x1b[0m\n"
