"""Nothing that acts on a terminal gets through, and what is harmless stays as it is."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from localdiff.view.sanitize import MISSING, safe_piece, safe_text

# All special characters lie in these blocks; the rest is letters, of which a sample will do.
BLOCKS = [
    range(0x3200),
    range(0xD7B0, 0xE010),
    range(0xF8F0, 0x10000),
    range(0x1F000, 0x1FB00),
    range(0xE0000, 0xE0200),
    range(0, sys.maxunicode + 1, 97),
]
ALL = "".join(chr(code) for block in BLOCKS for code in block)


def is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Fillers and selectors, which are not format characters: the first and last of each range.
INVISIBLE = set("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180d\u180f\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef")
ZERO_WIDTH = set("\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u180e")


def test_every_kind_of_character_comes_out_safe_in_a_piece() -> None:
    shown = set(safe_piece(ALL))
    assert not {c for c in shown if is_control(c)}
    assert not shown & (BIDI | ZERO_WIDTH)
    assert not {c for c in shown if unicodedata.category(c) in {"Co", "Cn"}}
    assert not shown & INVISIBLE
    shown.discard(MISSING)
    assert len(shown) > 10_000, "letters of all scripts have to stay"


def test_every_kind_of_character_comes_out_safe_in_final_text() -> None:
    shown = set(safe_text(ALL))
    assert {c for c in shown if is_control(c)} == {"\n", "\t"}
    assert not shown & BIDI
    assert shown & ZERO_WIDTH == set("\u200c\u200d")
    assert not {c for c in shown if ord(c) & 0xFFFF >= 0xFFFE}, "these are no characters"
    assert "\ufe0f" in shown


@pytest.mark.parametrize(
    ("attack", "shown"),
    [
        ("\x1b]52;c;ZXZpbA==\x07", "▯]52;c;ZXZpbA==▯"),
        ("\x1b]8;;http://x\x1b\\click", "▯]8;;http://x▯\\click"),
        ("\x9b2J", "▯2J"),
        ("a\rb", "a▯b"),
        ("\x00\x7f", "▯▯"),
        ("x\u202etxt.exe", "xtxt.exe"),
        ("pass\u200bword", "password"),
        ("\ud800", "▯"),
        ("a\u2028b", "a▯b"),
    ],
)
def test_known_tricks_in_a_piece(attack: str, shown: str) -> None:
    assert safe_piece(attack) == shown


def test_a_piece_turns_a_tab_into_four_spaces_and_rare_ones_into_as_many_as_they_are_wide() -> None:
    assert safe_piece("\ta\u00a0b\u3000c") == "    a b  c"


def test_a_piece_is_composed_so_that_few_marks_are_left() -> None:
    assert safe_piece("e\u0301") == "é"


def test_final_text_without_tricks_is_untouched() -> None:
    text = "Tab\there, newline\n\n👩‍👩‍👧‍👦 ❤️ क्‍ष naïve 日本語 \ue0b0\n"
    assert safe_text(text) == text


def test_final_text_keeps_lines() -> None:
    assert safe_text("a\r\nb\u2028c") == "a\nb\nc"
    assert safe_text("a\rb\x1b[2J\u202e") == "a▯b▯[2J"
