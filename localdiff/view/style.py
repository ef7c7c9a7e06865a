"""Parts of a drawn row: spans of text with a width in columns and a style.

Knows colours as xterm indices and attributes as flags; knows nothing about canvases, escape codes or files,
so that a terminal and an SVG picture can be made from the same rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias


class Style(NamedTuple):
    """How a span looks.

    Attributes:
        foreground: xterm colour index (0..15 are the terminal's own colours, 16..255 fixed), or None for
            its default.
        bold: heavier strokes.
        dim: fainter than the default.
        underline: means *changed* on a cell and *back to noise* on the position map.
    """

    foreground: int | None = None
    bold: bool = False
    dim: bool = False
    underline: bool = False

    def underlined(self) -> Style:
        """This style underlined; always the same object, so that styles can be told apart by identity."""
        return _underlined(self)


@lru_cache(maxsize=256)
def _underlined(style: Style) -> Style:
    return style._replace(underline=True)


PLAIN = Style()


class Span(NamedTuple):
    """A run of text in one style; `width` counts terminal columns, not characters."""

    text: str
    width: int
    style: Style


Row: TypeAlias = tuple[Span, ...]

SPACE = Span(" ", 1, PLAIN)


def blank(columns: int) -> Span:
    """`columns` of unstyled space."""
    return Span(" " * columns, columns, PLAIN)


def row_width(row: Row) -> int:
    """Columns that a row fills."""
    return sum(span.width for span in row)


def row_text(row: Row) -> str:
    """A row without its styles."""
    return "".join(span.text for span in row)
