"""Widths of characters in columns, and which ones may be drawn while a cell is uncertain.

Knows Unicode and rich's width table; knows nothing about colours or rows. Terminals disagree about joined
emoji, flags, Indic vowel signs and conjoining letters, so the moving canvas draws only characters on whose
width they agree: uncertain cells have certain width. Indic vowel signs, without which nobody could read a draft, are
the exception: they count as the column that most terminals give them, so that no row is too wide for any. Every
function takes text that `sanitize.safe_piece` has made safe.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import get_character_cell_size

from localdiff.view.sanitize import MISSING, safe_piece

BASE_FOR_MARKS = "◌"
MAX_MARKS = 3

_FIRST_REGIONAL, _LAST_REGIONAL = 0x1F1E6, 0x1F1FF
_SKIN_TONES = range(0x1F3FB, 0x1F400)
# Conjoining Hangul letters, Arabic ligatures of a whole phrase, and letters wider than their column.
_UNCERTAIN = (
    range(0x1100, 0x1200),
    range(0xA960, 0xA980),
    range(0xD7B0, 0xD800),
    range(0xFDF0, 0xFE00),
    range(0x12000, 0x12550),
    range(0x2E3A, 0x2E3C),
)


@lru_cache(maxsize=8192)
def character_width(character: str) -> int:
    """Maximum columns of one character: 0 for most marks, 2 for East Asian wide ones and emoji, else 1."""
    return 1 if unicodedata.category(character) == "Mc" else get_character_cell_size(character)


def is_mark(character: str) -> bool:
    """Whether a character belongs to the one before it, with or without a column of its own."""
    return unicodedata.category(character) == "Mc" or character_width(character) == 0


def text_width(text: str) -> int:
    """Maximum columns of safe text: the sum over its characters, since nothing in it joins."""
    return len(text) if text.isascii() else sum(map(character_width, text))


@lru_cache(maxsize=8192)
def _settled_form(character: str) -> str:
    code = ord(character)
    if _FIRST_REGIONAL <= code <= _LAST_REGIONAL:
        return chr(ord("A") + code - _FIRST_REGIONAL)
    if any(code in block for block in _UNCERTAIN):
        return MISSING
    if character_width(character) == 0 and not unicodedata.category(character).startswith("M"):
        return MISSING
    return character


@lru_cache(maxsize=8192)
def _uncertain_form(character: str) -> str:
    settled = _settled_form(character)
    category = unicodedata.category(settled)
    drawable = category[0] in "LNP" or category in {"Zs", "Sm", "Sc", "Sk"}
    return settled if drawable and character_width(settled) > 0 else MISSING


def uncertain_text(text: str) -> str:
    """`text` in letters, digits, punctuation and CJK only: marks are dropped, the rest becomes `▯`."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    for character in text:
        if is_mark(character) and shown:
            continue
        shown.append(_uncertain_form(character))
    return "".join(shown)


def settled_text(text: str) -> str:
    """`text` as leaning and settled cells show it: bare emoji, marks on a base, flags as letters."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for character in text:
        if ord(character) in _SKIN_TONES and shown:
            continue
        form = _settled_form(character)
        if not is_mark(form):
            marks = 0
        elif not shown:
            shown.append(BASE_FOR_MARKS)
            marks = 1
        else:
            marks += 1
            if marks > MAX_MARKS:
                continue
        shown.append(form)
    return "".join(shown)


def separate_characters(text: str) -> list[str]:
    """What a line that is being typed shows for each character of `text`: flags as letters, nothing that joins."""
    shown: list[str] = []
    for index, character in enumerate(text):
        code = ord(character)
        if character.isascii() or unicodedata.category(character) in {"Cc", "Cn", "Co"}:
            # A line editor has its own signs for control characters, and unassigned characters may be newer emoji.
            shown.append(character)
        elif code in _SKIN_TONES and index:
            shown.append("")
        elif _FIRST_REGIONAL <= code <= _LAST_REGIONAL:
            shown.append(_settled_form(character))
        else:
            shown.append(safe_piece(character))
    return shown


def shortened(text: str, columns: int, mark: str) -> str:
    """`text` if it fits `columns` columns, else as much of its beginning as fits with `mark` after it."""
    if text_width(text) <= columns:
        return text
    return clip(clip(text, max(0, columns - text_width(mark))).rstrip() + mark, columns)


def ascii_text(text: str) -> str:
    """`text` for a terminal without UTF-8: one `?` for each column of what it cannot show."""
    return "".join(c if c.isascii() else "?" * character_width(c) for c in text)


def clip(text: str, columns: int) -> str:
    """The longest beginning of `text` that fits `columns` columns."""
    used = 0
    for index, character in enumerate(text):
        used += character_width(character)
        if used > columns:
            return text[:index]
    return text
