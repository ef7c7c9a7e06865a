"""Cells in, rows out: where lines end, and which rows are shown when not all fit.

Knows widths and break opportunities; knows nothing about entropy or text. No row is wider than asked for: a
cell that does not fit moves to the next row together with what is glued to it, and a glued run longer than
a row is torn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from localdiff.view.cells import Cell
from localdiff.view.style import SPACE, Row, Span

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


class Flow:
    """Lays cells out, one after the other."""

    def __init__(self, columns: int) -> None:
        if columns < 2:
            raise ValueError(f"{columns=} should be at least 2")
        self._columns = columns
        self._rows: list[Row] = []
        self._first: list[int] = []
        self._row: list[Cell] = []
        self._owners: list[int] = []
        self._used = 0
        self._break_at = 0
        self._breaks = 0
        self._position = COMMITTED

    def add(self, position: int, cells: Iterable[Cell]) -> None:
        """Append the cells of one position."""
        self._position = position
        for cell in cells:
            if cell.bare is not None and self._row and self._row[-1].span.text[-1:].isalpha():
                cell = Cell(cell.bare, 0, False, 0)
            breaks = cell.breaks > 0 and self._breaks < MAX_BREAKS_IN_A_ROW
            if self._row and self._used + cell.lead + cell.span.width > self._columns:
                if breaks:
                    # The sign of a line break needs no row of its own: the row ends here anyway.
                    self._breaks += 1
                    self._end_row(len(self._row))
                    continue
                self._wrap(cell)
            if self._row and cell.soft:
                self._break_at = len(self._row)
            if cell.span.text:
                self._used += cell.span.width + (cell.lead if self._row else 0)
                self._row.append(cell)
                self._owners.append(position)
            if breaks:
                self._breaks += 1
                self._end_row(len(self._row))
            elif not cell.breaks:
                self._breaks = 0

    def page(self) -> Page:
        """All rows so far."""
        if self._row or not self._rows:
            self._end_row(len(self._row))
        return Page(rows=tuple(self._rows), first_positions=tuple(self._first))

    def _wrap(self, cell: Cell) -> None:
        keep = len(self._row) if cell.soft or not self._break_at else self._break_at
        self._end_row(keep)
        if self._row and self._used + cell.span.width > self._columns:
            self._end_row(len(self._row))

    def _end_row(self, count: int) -> None:
        self._first.append(self._owners[0] if self._owners else self._position)
        self._rows.append(_spans(self._row[:count]))
        self._row = self._row[count:]
        self._owners = self._owners[count:]
        self._used = sum(cell.span.width + cell.lead for cell in self._row) - (self._row[0].lead if self._row else 0)
        self._break_at = 0


def _spans(cells: list[Cell]) -> Row:
    spans: list[Span] = []
    for index, cell in enumerate(cells):
        if cell.lead and index:
            spans.append(SPACE)
        spans.append(cell.span)
    return tuple(spans)


def window(total: int, focus: int, rows: int, previous_top: int) -> int:
    """Index of the first row to show so that row `focus` is in sight, moving as little as possible.

    Args:
        total: rows there are.
        focus: row where something happens.
        rows: rows that fit.
        previous_top: what was the first row in the frame before.
    """
    margin = 1 if rows >= 4 else 0
    top = min(previous_top, focus - margin)
    top = max(top, focus + margin - rows + 1)
    return max(0, min(top, total - rows))
