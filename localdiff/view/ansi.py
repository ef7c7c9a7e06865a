"""Rows and thoughts as text with SGR codes, the only control sequences put around model text.

Knows the codes for colours and attributes; knows nothing about cursors or screens.
"""

from __future__ import annotations

from functools import lru_cache

from localdiff.view.sanitize import safe_text
from localdiff.view.style import PLAIN, Row, Style

RESET = "\x1b[0m"


@lru_cache(maxsize=256)
def sgr(style: Style) -> str:
    """The SGR sequence that sets exactly this style, whatever was set before."""
    codes = ["0"]
    if style.bold:
        codes.append("1")
    if style.dim:
        codes.append("2")
    if style.underline:
        codes.append("4")
    color = style.foreground
    if color is not None:
        codes.append(f"3{color}" if color < 8 else f"9{color - 8}" if color < 16 else f"38;5;{color}")
    return f"\x1b[{';'.join(codes)}m"


def encode_row(row: Row) -> str:
    """A row for a terminal: begins and ends with the default style, without trailing blanks."""
    while row and row[-1].text.isspace() and not row[-1].style.underline:
        row = row[:-1]
    parts: list[str] = []
    current = PLAIN
    for text, _, style in row:
        # Space has no colour, so it changes style only where an underline would begin or end.
        if style is not current and (style.underline or current.underline or not text.isspace()):
            parts.append(sgr(style))
            current = style
        parts.append(text)
    if current is not PLAIN:
        parts.append(RESET)
    return "".join(parts)


_FAINT = sgr(Style(dim=True))


def encode_thought(text: str) -> str:
    """Whole lines of a thought for a terminal: made safe, faint."""
    return "".join(f"{_FAINT}{line}{RESET}\n" if line else "\n" for line in safe_text(text).split("\n")[:-1])
