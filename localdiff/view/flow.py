"""Line layout: cells in, rows out, and which rows are shown when not all fit.

Knows widths and break opportunities; knows nothing about entropy or text. No row is wider than asked for: a
cell that does not fit moves to the next row together with what is glued to it, and a glued run longer than
a row is torn. Blanks between words where a row ends are left out. Rows that continue a line are indented like its
text after list and quote marks, as `word_wrap` indents final text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count

from localdiff.view.cells import MAX_SIGN_NAME, Cell
from localdiff.view.line_marks import columns_of_marks, is_line_mark
from localdiff.view.style import Row, blank, row_text
from localdiff.view.widths import is_mark

MAX_BREAKS_IN_A_ROW = 2
_WIDEST = MAX_SIGN_NAME + 2
"""Columns of the widest cell, for which every row has room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Rows of a body and where cells are on them.

    Attributes:
        rows: all rows, also those that do not fit the screen.
        starts: the index of each row's first cell.
        indents: indent of each row that continues a line; None for a line's first row.
    """

    rows: tuple[Row, ...]
    starts: tuple[int, ...]
    indents: tuple[int | None, ...]

    def row_of(self, cell: int) -> int:
        """Index of the row that a cell is on, or would be, were it not left out."""
        return max(0, bisect_right(self.starts, cell) - 1)


def lay_out(cells: Sequence[Cell], columns: int, *, indent: int | None = None) -> Page:
    """Lay out cells on rows.

    Args:
        columns: two or more, since a wide character would not fit in less.
        indent: of the first row, if it continues a line.
    """
    if not cells:
        return Page(rows=((),), starts=(0,), indents=(indent,))
    strip = _Strip(_joined(cells))
    places = list(strip.cut(columns, indent))
    return Page(
        rows=tuple([strip.row(*place) for place in places]),
        starts=tuple([start for start, _, _ in places]),
        indents=tuple([indent for _, _, indent in places]),
    )


def _joined(cells: Sequence[Cell]) -> Sequence[Cell]:
    """The cells; a mark directly after a letter joins it, and loses the base that was lent to it."""
    if not any(cell.bare for cell in cells):
        return cells
    joined: list[Cell] = []
    before = ""
    for cell in cells:
        if cell.bare and before and (before.isalpha() or is_mark(before)):
            cell = Cell((cell.bare,), cell.bare.width, False, 0)
        joined.append(cell)
        before = cell.span.text[-1:]
    return joined


class _Strip:
    """All cells on one endless row, which is cut into the rows of a page. Cells are named by their indices."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._spans, columns, softs, breaks, _ = zip(*cells, strict=True)
        self._edges = list(accumulate(columns))  # the column behind each cell
        self._softs = [0, *compress(count(), softs)]  # cells before which a row may end
        self._breaks = list(compress(count(), breaks))  # cells behind which a row ends

    def row(self, start: int, stop: int, indent: int | None) -> Row:
        """The spans of a row, which has no blank before its first cell."""
        first, others = self._spans[start][-1], chain.from_iterable(self._spans[start + 1 : stop])
        return (blank(indent), first, *others) if indent else (first, *others)

    def cut(self, columns: int, indent: int | None) -> Iterator[tuple[int, int, int | None]]:
        """Each row's first cell, the cell behind its last one, and its indent; see `lay_out`."""
        start = 0
        for end, next_line in self._lines():
            may_lead, hanging = indent is None, indent or 0
            while start < next_line:
                first = self._spans[start][-1]
                if indent is not None and first.text.isspace():
                    start += 1  # it was between words
                    continue
                edge = self._edges[start] - first.width + columns - (indent or 0)
                stop = bisect_right(self._edges, edge, start + 1, next_line)
                may_lead = may_lead and not first.text.isalpha()
                if may_lead:
                    text = row_text(self.row(start, stop, indent))
                    column = columns_of_marks(text)
                    hanging = column if column <= min(columns // 2, columns - _WIDEST) else 0
                    may_lead = is_line_mark(text[column:])  # so far the line has only marks
                if stop < end:
                    soft = self._softs[bisect_right(self._softs, stop) - 1]
                    stop = soft if soft > start else stop
                yield start, stop, indent
                # A newline that does not fit needs no row of its own: its line ends here anyway.
                start, indent = stop if stop < end else next_line, hanging
            indent = None

    def _lines(self) -> Iterator[tuple[int, int]]:
        """For each line the cell behind its text, and the first cell of the next line, which is behind the newline."""
        in_a_row = next_line = 0
        for index in self._breaks:
            in_a_row = in_a_row + 1 if index == next_line else 1
            next_line = index + 1
            if in_a_row <= MAX_BREAKS_IN_A_ROW:
                yield index, next_line
        yield len(self._spans), len(self._spans)


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
