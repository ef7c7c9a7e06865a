"""An uncertain cell shows only characters on whose width terminals agree; other text fits the columns it gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

from localdiff.view.sanitize import safe_piece
from localdiff.view.widths import (
    ascii_text,
    clip,
    settled_text,
    text_width,
    uncertain_text,
)


@pytest.mark.parametrize(
    ("piece", "uncertain", "settled"),
    [
        ("the", "the", "the"),
        ("日本", "日本", "日本"),
        ("🙂", "▯", "🙂"),
        ("👍🏽", "▯", "👍"),
        ("👩‍👩‍👧", "▯▯▯", "👩👩👧"),
        ("🇫🇷", "FR", "FR"),
        ("❤️", "▯", "❤"),
        ("\u0301", "▯", "◌\u0301"),
        ("n\u0303\u0301", "ñ", "ñ\u0301"),
        ("a" + "\u0336" * 9, "a", "a" + "\u0336" * 3),
        ("\ufdfa", "▯", "▯"),
        ("\u1112\u1161", "하", "하"),
        ("\u1161", "▯", "▯"),
        ("$x²≠∑$", "$x²≠∑$", "$x²≠∑$"),
        ("→", "→", "→"),
        ("हिन्दी", "हनद", "हिन्दी"),
        ("\u093f", "▯", "◌\u093f"),
    ],
)
def test_what_a_piece_shows(piece: str, uncertain: str, settled: str) -> None:
    safe = safe_piece(piece)
    assert uncertain_text(safe) == uncertain
    assert settled_text(safe) == settled


@given(st.text())
def test_our_width_is_the_sum_of_what_terminals_agree_on(text: str) -> None:
    shown = uncertain_text(safe_piece(text))
    assert text_width(shown) == wcswidth(shown)


@given(st.text(), st.integers(0, 12))
def test_clipping_gives_the_longest_beginning_that_fits(text: str, columns: int) -> None:
    safe = settled_text(safe_piece(text))
    clipped = clip(safe, columns)
    assert safe.startswith(clipped)
    assert text_width(clipped) <= columns
    assert clipped == safe or text_width(safe[: len(clipped) + 1]) > columns


@given(st.text())
def test_ascii_keeps_the_width(text: str) -> None:
    safe = settled_text(safe_piece(text))
    assert ascii_text(safe).isascii()
    assert len(ascii_text(safe)) == text_width(safe)


@pytest.mark.parametrize("shown", [settled_text, uncertain_text])
def test_ascii_stays_as_it_is_and_steers_nothing(shown: Callable[[str], str]) -> None:
    ascii = "".join(map(chr, range(32, 127)))
    assert shown(ascii) == ascii and shown(ascii + "é") == ascii + "é"
    assert "\x1b" not in shown("a\x1b[2Jb")
