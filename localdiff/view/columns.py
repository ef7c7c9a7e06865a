"""Rows of text as lines of aligned columns, and long lines broken between words.

Knows widths of characters; knows nothing about what the cells say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localdiff.view.widths import text_width


def aligned(
    rows: Sequence[Sequence[str]],
    sides: str,
    *,
    widest: int | None = None,
    width: int | None = None,
    headed: bool = False,
) -> list[str]:
    """One line per row, columns two apart, without blanks at the end.

    Args:
        rows: safe text; all rows have the same number of cells.
        sides: `<` or `>` for each column, the side to which its cells are aligned.
        widest: maximum width of a column, so that one long cell shifts only its own row; None for no limit.
        width: columns of the terminal; None if it is not one. If a line is wider, every row becomes a block of lines:
            the first cell, and the others below it; or as in `listed`.
        headed: whether the first row names the columns, so that they can be listed by name.
    """
    widths = [max(text_width(row[column]) for row in rows) for column in range(len(sides))]
    if widest is not None:
        widths = [min(width, widest) for width in widths]
    lines = []
    for row in rows:
        cells = []
        for cell, cell_width, side in zip(row, widths, sides, strict=True):
            room = " " * (cell_width - text_width(cell))
            cells.append(cell + room if side == "<" else room + cell)
        lines.append("  ".join(cells).rstrip())
    if width is not None and any(text_width(line) > width for line in lines):
        return listed(rows, width) if headed else [_stacked(row, width) for row in rows]
    return lines


def folded(text: str, width: int | None, *, start: str = "", indent: int = 0) -> list[str]:
    """A text as lines that are broken between words, but not within back-ticks, which enclose what is to be typed.

    Args:
        text: safe text.
        width: columns of a line, which a single word may exceed; None for one line, however long.
        start: what precedes the first line; the others begin with `indent` blanks.
    """
    if width is None:
        return [start + text]
    lines, line = [], start
    for place, word in enumerate(re.findall(" *(?:`[^`]*`|[^ ])+", text)):
        if place and text_width(line + word) > width:
            lines.append(line)
            line = " " * indent + word.lstrip(" ")
        else:
            line += word
    return [*lines, line]


def listed(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table too wide for a terminal, as a list of figures for each row, named by the first row, the head."""
    head, *others = rows
    lines = []
    for name, *figures in others:
        named = ", ".join(f"{what} {figure}" for what, figure in zip(head[1:], figures, strict=True) if figure)
        lines += folded(named, width, start=f"{head[0]} {name}: ".lstrip(), indent=2)
    return lines


def _stacked(row: Sequence[str], width: int) -> str:
    """The first cell, then as many of the others on an indented line as fit."""
    lines = [row[0], ""]
    for cell in filter(None, row[1:]):
        longer = f"{lines[-1]}  {cell}"
        if lines[-1] and text_width(longer) > width:
            lines.append(f"  {cell}")
        else:
            lines[-1] = longer
    return "\n".join(filter(None, lines))
