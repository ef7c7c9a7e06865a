"""Line layout: cells in, rows out, and which rows are shown when not all fit.

Knows widths and break opportunities; knows nothing about entropy or text. No row is wider than asked for: a
cell that does not fit moves to the next row together with what is glued to it, and a glued run longer than
a row is torn. Blanks between two words that a row's end divides are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from localdiff.view.cells import Cell
from localdiff.view.style import SPACE, Row, Span
from localdiff.view.widths import is_mark

MAX_BREAKS_IN_A_ROW = 2
COMMITTED = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Rows of a body and where positions are on them.

    Attributes:
        rows: all rows, also those that do not fit the screen.
        first_positions: the canvas position that each row begins with, or the last one before it on an
            empty row; `COMMITTED` for rows that begin with final text.
    """

    rows: tuple[Row, ...]
    first_positions: tuple[int, ...]

    def row_of(self, position: int) -> int:
        """Index of the row that a position is on."""
        return max(0, bisect_right(self.first_positions, position) - 1)


def lay_out(cells: Sequence[Cell], owners: Sequence[int], columns: int) -> Page:
    """Lay out cells on rows.

    Args:
        owners: the canvas position of each cell, or `COMMITTED`; never decreasing.
        columns: two or more, since a wide character would not fit in less.
    """
    rows: list[Row] = []
    starts: list[int] = []
    row: list[Cell] = []
    start = used = soft = breaks = 0  # index of the row's first cell, its columns, where it may end early, line breaks
    goes_on = False  # whether the row is not the first one of its line

    def end_row(cells: list[Cell]) -> None:
        rows.append(_spans(cells))
        starts.append(start)

    for index, cell in enumerate(cells):
        span, lead, is_soft, ends, bare = cell
        if bare is not None and row and _takes_marks(row[-1].span.text[-1:]):
            cell = Cell(bare, 0, False, 0)
            span, lead, is_soft = bare, 0, False
        breaks_row = ends and breaks < MAX_BREAKS_IN_A_ROW
        if row and used + lead + span.width > columns and not breaks_row:
            keep = len(row) if is_soft or not soft else soft
            end_row(row[:keep])
            row = row[keep:]
            while row and _is_blank(row[0]):
                row.pop(0)
            start, used, soft = index - len(row), _width(row), 0
            if row and used + span.width > columns:
                end_row(row)
                row, start, used = [], index, 0
            goes_on = True
        if goes_on and not row and _is_blank(cell):
            start = index + 1
            continue
        if row:
            used += lead
            if is_soft:
                soft = len(row)
        used += span.width
        if used <= columns or not breaks_row:
            row.append(cell)
        if breaks_row:
            # A newline sign that did not fit needs no row of its own: the row ends here anyway.
            end_row(row)
            row, start, used, soft, goes_on = [], index + 1, 0, 0, False
            breaks += 1
        elif not ends:
            breaks = 0
    if row or not rows:
        end_row(row)
    first = tuple(owners[start] if start < len(owners) else COMMITTED for start in starts)
    return Page(rows=tuple(rows), first_positions=first)


def _is_blank(cell: Cell) -> bool:
    """Whether it is left out at the beginning of a row that goes on with a line."""
    return cell.span.text.isspace()


def _takes_marks(character: str) -> bool:
    return character.isalpha() or (character != "" and is_mark(character))


def _width(cells: list[Cell]) -> int:
    return sum(cell.span.width + cell.lead for cell in cells) - (cells[0].lead if cells else 0)


def _spans(cells: list[Cell]) -> Row:
    spans: list[Span] = []
    for cell in cells:
        if cell.lead and spans:
            spans.append(SPACE)
        spans.append(cell.span)
    return tuple(spans)


def window(total: int, focus: int, rows: int, previous_top: int) -> int:
    """Index of the first row to show so that row `focus` is visible, moving as little as possible.

    Args:
        total: rows there are.
        focus: row where something happens.
        rows: rows that fit.
        previous_top: the first row in the frame before.
    """
    margin = 1 if rows >= 4 else 0
    top = min(previous_top, focus - margin)
    top = max(top, focus + margin - rows + 1)
    return max(0, min(top, total - rows))
