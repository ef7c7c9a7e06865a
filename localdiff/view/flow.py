"""Line layout: cells in, rows out, and which rows are shown when not all fit.

Knows widths and break opportunities; knows nothing about entropy or text. No row is wider than asked for: a
cell that does not fit moves to the next row together with what is glued to it, and a glued run longer than
a row is torn. Blanks between words where a row ends are left out. Rows that continue a line are indented like its
text after list and quote marks, as `word_wrap` indents final text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from localdiff.view.cells import MAX_SIGN_NAME, Cell
from localdiff.view.line_marks import is_line_mark
from localdiff.view.style import SPACE, Row, Span, blank
from localdiff.view.widths import is_mark

MAX_BREAKS_IN_A_ROW = 2
COMMITTED = -1
_WIDEST = MAX_SIGN_NAME + 2
"""Columns of the widest cell, for which every row has room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Rows of a body and where positions are on them.

    Attributes:
        rows: all rows, also those that do not fit the screen.
        first_positions: the canvas position that each row begins with, or the last one before it on an
            empty row; `COMMITTED` for rows that begin with final text.
        indents: indent of each row that continues a line; None for a line's first row.
    """

    rows: tuple[Row, ...]
    first_positions: tuple[int, ...]
    indents: tuple[int | None, ...]

    def row_of(self, position: int) -> int:
        """Index of the row that a position is on."""
        return max(0, bisect_right(self.first_positions, position) - 1)


def lay_out(cells: Sequence[Cell], owners: Sequence[int], columns: int, *, indent: int | None = None) -> Page:
    """Lay out cells on rows.

    Args:
        owners: the canvas position of each cell, or `COMMITTED`; never decreasing.
        columns: two or more, since a wide character would not fit in less.
        indent: of the first row, if it continues a line.
    """
    rows: list[Row] = []
    starts: list[int] = []
    indents: list[int | None] = []
    row: list[Cell] = []
    start = soft = breaks = 0  # index of the row's first cell, where it may end early, line breaks
    used = indent or 0  # the row's columns so far
    line = _Line(columns, indent)

    def end_row(cells: list[Cell]) -> None:
        spans = _spans(cells)
        rows.append((blank(indent), *spans) if indent and spans else spans)
        starts.append(start)
        indents.append(indent)

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
            indent = line.indent
            start, used, soft = index - len(row), indent + _width(row), 0
            if row and used + span.width > columns:
                end_row(row)
                row, start, used = [], index, indent
        if indent is not None and not row and _is_blank(cell):
            start = index + 1
            continue
        if row:
            used += lead
            if is_soft:
                soft = len(row)
        if line.leads and not _is_blank(cell):
            line.add(span.text, used, begins_word=lead > 0 or not row or _is_blank(row[-1]))
        used += span.width
        if used <= columns or not breaks_row:
            row.append(cell)
        if breaks_row:
            # A newline sign that did not fit needs no row of its own: the row ends here anyway.
            end_row(row)
            row, start, used, soft, indent = [], index + 1, 0, 0, None
            line = _Line(columns)
            breaks += 1
        elif not ends:
            breaks = 0
    if row or not rows:
        end_row(row)
    first = tuple(owners[start] if start < len(owners) else COMMITTED for start in starts)
    return Page(rows=tuple(rows), first_positions=first, indents=tuple(indents))


class _Line:
    """The line that is being laid out.

    Args:
        indent: of a row that continues a line whose beginning is not known.

    Attributes:
        indent: columns before the rows that continue it.
        leads: whether it may so far have only list and quote marks.
    """

    def __init__(self, columns: int, indent: int | None = None) -> None:
        self._most = min(columns // 2, columns - _WIDEST)
        self._word = ""
        self.indent = indent or 0
        self.leads = indent is None

    def add(self, text: str, column: int, *, begins_word: bool) -> None:
        """Take the line's next text, which is at this column."""
        if begins_word:
            self.leads = is_line_mark(self._word)
            if self.leads:
                self.indent = column if column <= self._most else 0
            self._word = ""
        self._word += text


def _is_blank(cell: Cell) -> bool:
    """Whether a cell is left out at the beginning of a row that continues a line."""
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
        total: number of rows.
        focus: row where something happens.
        rows: rows that fit.
        previous_top: the first row in the previous frame.
    """
    margin = 1 if rows >= 4 else 0
    top = min(previous_top, focus - margin)
    top = max(top, focus + margin - rows + 1)
    return max(0, min(top, total - rows))
