"""The canvas as rows: a pure function of a scene, a size and a palette.

Knows every part of the picture and their order; knows nothing about terminals. The terminal and
pictures for documents draw these rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain

from localdiff.view.canvas_state import CanvasState, state_of
from localdiff.view.cells import Cell, CellMaker
from localdiff.view.draft import DraftCells
from localdiff.view.flow import Page, lay_out, window
from localdiff.view.layout import Layout, Size, Tier, layout_of, tier_of
from localdiff.view.margins import footer_row, header_rows, legend_row, prompt_row, status_row
from localdiff.view.palette import SETTLED, Palette
from localdiff.view.pieces import Pieces
from localdiff.view.scene import Scene
from localdiff.view.style import Row, Span
from localdiff.view.widths import text_width

_GROWTH = 4
"""Rows that a body grows by, if its page has them, so that the rest of the picture seldom moves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """What the previous frame showed; the next frame marks what differs from it.

    Attributes:
        block: its block.
        ids: its draft, or None where the canvas was untouched noise.
        top: first visible row of the page.
        rows: rows of its body.
        size: of the terminal.
    """

    block: int = 0
    ids: tuple[int, ...] | None = None
    top: int = 0
    rows: int = 0
    size: Size | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Final:
    """Final text before the canvas: its cells, and each row's first cell and indent."""

    cells: tuple[Cell, ...] = ()
    starts: tuple[int, ...] = ()
    indents: tuple[int | None, ...] = ()

    def last(self, rows: int) -> tuple[tuple[Cell, ...], int, int | None]:
        """The cells of the last rows, how many rows are before them, and the indent of the first of them."""
        above = max(0, len(self.starts) - rows)
        return (self.cells[self.starts[above] :], above, self.indents[above]) if above else (self.cells, 0, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """Rows to draw, and what the next call needs to know about them."""

    rows: tuple[Row, ...]
    drawn: Drawn


class CanvasView:
    """Draws scenes in one palette; the same arguments give the same picture; it only caches cells and layouts."""

    def __init__(self, *, pieces: Pieces, palette: Palette) -> None:
        self._palette = palette
        self._cells = CellMaker(pieces=pieces, palette=palette)
        self._draft = DraftCells(self._cells)
        self._layout: tuple[tuple[object, ...], Layout] | None = None
        self._final = _Final()

    def picture(self, scene: Scene, size: Size, drawn: Drawn | None = None, *, one_line: bool = False) -> Picture:
        """The rows of a scene, none wider than the terminal minus one column.

        Args:
            drawn: the frame that is on the screen now; None marks nothing as changed.
            one_line: draw the status line whatever the size.
        """
        drawn = drawn or Drawn()
        columns = max(0, size.columns - 1)
        if one_line or tier_of(size) is Tier.LINE:
            return Picture(rows=(status_row(scene, columns, self._palette),), drawn=drawn)
        if scene.block is None:
            return Picture(rows=(prompt_row(scene, columns, self._palette),), drawn=drawn)
        layout = self._laid_out(scene, len(scene.block.canvas_ids), size)
        if drawn.block != scene.block.block:
            above = min(len(self._final.starts), layout.most_body_rows) - layout.pending_rows
            drawn = Drawn(block=scene.block.block, top=max(0, above))
        if drawn.size != size:
            drawn = replace(drawn, rows=0)
        state = state_of(scene)
        body, top = self._body(scene, state, layout, drawn)
        rows = [*header_rows(scene, state, layout, self._palette), *body]
        if layout.footer_rows:
            rows.append(footer_row(scene, state, layout, self._palette))
        if layout.legend_rows:
            rows.append(legend_row(layout, self._palette))
        ids = scene.step.argmax_ids if scene.step else None
        drawn = Drawn(block=scene.block.block, ids=ids, top=top, rows=len(body), size=size)
        return Picture(rows=tuple(rows), drawn=drawn)

    def _laid_out(self, scene: Scene, length: int, size: Size) -> Layout:
        """The layout that this scene gets on a terminal of this size; the same for every step of a block."""
        key = (size, length, scene.pending, scene.legend)
        if self._layout is None or self._layout[0] != key:
            layout_for = partial(layout_of, size, palette=self._palette, canvas_length=length, legend=scene.legend)
            layout, self._final = layout_for(), _Final()
            if scene.pending:
                self._final = self._final_text(scene.pending, layout.body_columns)
                layout = layout_for(pending=text_width(scene.pending), pending_rows=len(self._final.starts))
            self._layout = (key, layout)
        return self._layout[1]

    def _final_text(self, text: str, columns: int) -> _Final:
        """Final text, laid out once per block: there may be much of it, and no step changes it."""
        cells = self._cells.committed(text)
        page = lay_out(cells, columns)
        return _Final(cells=cells, starts=page.starts, indents=page.indents)

    def _body(self, scene: Scene, state: CanvasState, layout: Layout, drawn: Drawn) -> tuple[list[Row], int]:
        final, above, indent = self._final.last(layout.most_body_rows)
        draft = self._draft.by_position(
            scene.step.argmax_ids if scene.step else (),
            state,
            before=drawn.ids,
            end_ids=scene.end_ids,
            pad_id=scene.run.pad_id if scene.run else None,
        )
        page = lay_out([*final, *chain.from_iterable(draft)], layout.body_columns, indent=indent)
        behind = [*accumulate(map(len, draft), initial=len(final))]  # of each position, the cell behind it
        settled = page.row_of(behind[_settled_length(state)] - 1) + 1
        rows = _height(layout, drawn, settled, len(page.rows))
        unsettled = next((position for position, stage in enumerate(state.stages[: state.end]) if stage), len(draft))
        focus = page.row_of(behind[min(unsettled + 1, len(draft))] - 1)
        top = window(len(page.rows), focus, rows, drawn.top)
        prefix = Span(layout.prefix, text_width(layout.prefix), self._palette.chrome)
        shown = self._in_sight(page, top, rows, above)
        return [(prefix, *row) if layout.prefix else row for row in shown], top

    def _in_sight(self, page: Page, top: int, rows: int, above: int) -> list[Row]:
        """`rows` rows from `top` on, blank ones below a short page; notes say how many are hidden.

        The page begins with the end of the final text, of which `above` rows are cut off.
        """
        shown = list(page.rows[top : top + rows])
        below = len(page.rows) - top - rows
        if rows >= 4 and top + above > 0:
            shown[0] = self._note(f"{above + top + 1} rows above")
        if rows >= 4 and below > 0:
            shown[-1] = self._note(f"{below + 1} rows below")
        return shown + [()] * (rows - len(shown))

    def _note(self, text: str) -> Row:
        text = f"{self._palette.glyphs.ellipsis} {text}"
        return (Span(text, text_width(text), self._palette.chrome),)


def _settled_length(state: CanvasState) -> int:
    """Positions up to the last settled one."""
    return next((end for end in range(state.end, 0, -1) if state.stages[end - 1] == SETTLED), 0)


def _height(layout: Layout, drawn: Drawn, settled: int, total: int) -> int:
    """Rows of the body: within a block it grows to what settled text needs, such as code on a wide terminal.

    Args:
        settled: rows of the page up to the last settled position. Two more are needed: where the model works next, and
            for the number of rows that are hidden below.
        total: rows of the page.
    """
    rows = max(layout.body_rows, drawn.rows)
    needed = min(settled + 2, total)
    if needed > rows:
        rows = max(needed, min(rows + _GROWTH, total))
    return min(rows, layout.most_body_rows)
