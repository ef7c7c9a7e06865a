"""The one place where model text is made safe for a terminal.

Knows which characters a terminal acts on or hides; knows nothing about colours or layout. Model text is
whatever the model ranks first, which includes text quoted from attached files and single bytes of the
vocabulary, so an escape, a clipboard command or a reordering mark must never get through. Two doors:

- `safe_piece` for the moving canvas, where every character must also have a certain width: invisible
  characters go, and whatever acts, is unassigned or is private becomes the mark for *something is here*.
- `safe_text` for final text on a terminal: tabs, newlines, joiners and variation selectors stay, so that
  emoji families and Indic scripts come out whole; everything that acts on the terminal or reorders the line
  is treated as above.

Into a pipe or a file neither is used: there the text is exact.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MISSING = "▯"
TAB = " " * 4
"""What the canvas shows for a tab, which would have no certain width."""

# Default_Ignorable_Code_Point beyond category Cf (Unicode 15, DerivedCoreProperties.txt): fillers and
# selectors draw nothing.
_SELECTORS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
_INVISIBLE = _SELECTORS | {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0}
_JOINERS = frozenset([0x200C, 0x200D])

# Category Cf, but drawn: Arabic, Syriac and Kaithi number signs. Egyptian layout controls are not.
_DRAWN_FORMATS = frozenset([*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD])

_PLAIN_ASCII = re.compile(r"[\x20-\x7e]*\Z")
_PLAIN_LINES = re.compile(r"[\x20-\x7e\n\t]*\Z")


def is_noncharacter(code: int) -> bool:
    """Whether Unicode will never assign this code point: U+FDD0..FDEF and the last two of each plane."""
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


@lru_cache(maxsize=8192)
def _live(character: str) -> str:
    code = ord(character)
    category = unicodedata.category(character)
    if character == "\t":
        return TAB
    if category == "Zs":
        return "  " if code == 0x3000 else " "
    if code in _INVISIBLE:
        return ""
    if category == "Cf":
        # Number signs reach around the digits after them, over an unknown number of columns.
        return MISSING if code in _DRAWN_FORMATS else ""
    if category in {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"} or code == 0xFFFD:
        return MISSING
    return character


@lru_cache(maxsize=8192)
def _final(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or code in _JOINERS or code in _SELECTORS:
        return character
    category = unicodedata.category(character)
    if code in _INVISIBLE or (category == "Cf" and code not in _DRAWN_FORMATS):
        return ""
    if category in {"Zl", "Zp"}:
        return "\n"
    # Unassigned and private characters act on nothing, and a newer emoji than this Python knows is still an
    # emoji.
    if category in {"Cc", "Cs"} or is_noncharacter(code):
        return MISSING
    return character


def safe_piece(text: str) -> str:
    """A token piece that can stand in the canvas: nothing that acts, reorders or hides.

    Newlines become the mark for a missing character too; callers split at them first, because a newline is
    a sign there.
    """
    if _PLAIN_ASCII.match(text):
        return text
    return "".join(map(_live, unicodedata.normalize("NFC", text)))


def safe_text(text: str) -> str:
    """Final text that can be written to a terminal; equal to the input for text without tricks."""
    if _PLAIN_LINES.match(text):
        return text
    return "".join(map(_final, text.replace("\r\n", "\n")))
