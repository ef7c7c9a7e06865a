"""Rows of text as lines of aligned columns.

Knows widths of characters; knows nothing about what the cells say.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.view.widths import text_width


def aligned(rows: Sequence[Sequence[str]], sides: str, *, widest: int | None = None) -> list[str]:
    """One line per row, columns two apart, without blanks at the end.

    Args:
        rows: safe text; all rows have as many cells.
        sides: `<` or `>` for each column, the side to which its cells are aligned.
        widest: maximum width of a column, so that one long cell pushes only its own row aside; None for no limit.
    """
    widths = [max(text_width(row[column]) for row in rows) for column in range(len(sides))]
    if widest is not None:
        widths = [min(width, widest) for width in widths]
    lines = []
    for row in rows:
        cells = []
        for cell, width, side in zip(row, widths, sides, strict=True):
            room = " " * (width - text_width(cell))
            cells.append(cell + room if side == "<" else room + cell)
        lines.append("  ".join(cells).rstrip())
    return lines
