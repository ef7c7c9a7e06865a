"""The screen of a replay as rows: committed text, the canvas as in a live run, and the controls.

Knows a trace, a player, a size and a palette; knows nothing about terminals. Every row is narrower than the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from localdiff.sizes import counted, rounded
from localdiff.trace.player import Player
from localdiff.trace.timeline import Moment
from localdiff.trace.trace import Trace
from localdiff.view.canvas_view import CanvasView, Drawn
from localdiff.view.cells import CellMaker
from localdiff.view.flow import lay_out
from localdiff.view.layout import Size
from localdiff.view.palette import Palette
from localdiff.view.paragraphs import Passage
from localdiff.view.sanitize import safe_piece
from localdiff.view.style import PLAIN, SPACE, Row, Span, Style
from localdiff.view.widths import ascii_text, settled_text, shortened, text_width

MIN_ROWS = 8
"""Fewest rows for the full layout; smaller screens show the canvas alone."""

_LONGEST = 2000
"""Maximum characters of the question in the title, more than a row has: in each frame, all of them are measured."""
_KEYS = (  # with a place for what the space bar does
    "space {}  ←→ step  ↑↓ block  +- speed  home end  q quit",
    "space {}  ←→ step  ↑↓ block  +- speed  q quit",
    "space {}  ←→ step  ↑↓ block  q quit",
    "space {}  ←→ step  q quit",
    "space {}  q quit",
    "q quit",
)
_KEYS_ASCII = tuple(keys.replace("←→", "left/right").replace("↑↓", "up/down") for keys in _KEYS)


class ReplayView:
    """Draws moments of one trace."""

    def __init__(self, trace: Trace, palette: Palette) -> None:
        self._palette = palette
        self._view = CanvasView(pieces=trace, palette=palette)
        self._cells = CellMaker(pieces=trace, palette=palette)
        self._title = _title(trace, palette)

    def rows(self, player: Player, size: Size, drawn: Drawn | None = None) -> tuple[list[Row], Drawn]:
        """The rows of the whole screen, and what the next call needs to know about them.

        Args:
            drawn: what is on the screen now, so that changes are marked; None marks none.
        """
        if size.rows < MIN_ROWS:
            return self.frame(player.moment, size, drawn)
        columns = size.columns - 1
        frame, drawn = self.frame(player.moment, Size(size.columns, size.rows - 2), drawn)
        blank: list[Row] = [()] * (size.rows - 2 - len(frame))
        return [self._chrome(self._title, columns), *blank, *frame, self._controls(player, columns)], drawn

    def frame(self, moment: Moment, size: Size, drawn: Drawn | None = None) -> tuple[list[Row], Drawn]:
        """Committed text and the canvas below it, without title and controls; at most `size.rows` rows."""
        columns = size.columns - 1
        if moment.is_final:
            ending = self._ending(moment, columns)
            rows = [*self._above(moment.passages, columns, size.rows - len(ending)), *ending]
            return rows[-size.rows :], Drawn()
        picture = self._view.picture(moment.scene, size, drawn)
        room = size.rows - len(picture.rows)
        return [*self._above(moment.passages, columns, room), *picture.rows[: size.rows]], picture.drawn

    def _ending(self, moment: Moment, columns: int) -> list[Row]:
        """The figures of the whole run."""
        scene = moment.scene
        words = [counted(scene.tokens, "token"), counted(moment.block, "block"), counted(scene.passes, "step")]
        if scene.tok_per_s is not None:
            words.append(f"{rounded(scene.tok_per_s)} tok/s")
        between = f" {self._palette.glyphs.dot} "
        while len(words) > 2 and text_width(between.join(words)) >= columns:
            words.pop(1)
        return [(), self._chrome(f" {between.join(words)}", columns)]

    def _above(self, passages: Sequence[Passage], columns: int, room: int) -> list[Row]:
        """The last `room` rows of committed text; only what can be visible is laid out."""
        rows: list[Row] = []
        for passage in reversed(passages):
            if len(rows) >= room:
                break
            cells = self._cells.committed(_tail(passage.text, room * columns))
            page = lay_out(cells, max(2, columns))
            style = Style(dim=True) if passage.channel == "thought" else PLAIN
            rows = [tuple(Span(text, width, style) for text, width, _ in row) for row in page.rows] + rows
        return rows[-room:]

    def _controls(self, player: Player, columns: int) -> Row:
        timeline = player.timeline
        state = "playing" if player.playing else "at the end" if player.is_at_end else "paused"
        # Figures keep their width, so that the words after them stay in place.
        place = f"{player.index + 1:{len(str(len(timeline)))}}/{len(timeline)}"
        total = f"{timeline.seconds:.1f}"
        clock = f"{player.moment.seconds:{len(total)}.1f}/{total} s"
        figures = (f"{state:10} {_speed(player.speed):>5}  moment {place}  {clock}", f"{state:10} {place}")
        space = "pause" if player.playing else "again" if player.is_at_end else "play "
        keys = [names.format(space) for names in (_KEYS_ASCII if self._palette.glyphs.ascii_only else _KEYS)]
        # Figures are shortened before the key that quits is left out.
        now, fitting = next(
            (pair for pair in product(figures, keys) if sum(map(text_width, pair)) + 3 <= columns), (figures[-1], "")
        )
        return (
            SPACE,
            *self._words(now, PLAIN, columns - 1),
            *self._chrome("  " + fitting, columns - 1 - text_width(now)),
        )

    def _chrome(self, text: str, columns: int) -> Row:
        return self._words(text, self._palette.chrome, columns)

    def _words(self, text: str, style: Style, columns: int) -> Row:
        if self._palette.glyphs.ascii_only:
            text = ascii_text(text.replace("×", "x"))
        text = shortened(text, max(0, columns), self._palette.glyphs.ellipsis)
        return (Span(text, text_width(text), style),)


def _tail(text: str, characters: int) -> str:
    """The end of a text, from the start of a word; no row has more characters than columns."""
    if len(text) <= characters:
        return text
    cut = text[-characters:]
    return cut.partition(" ")[2] or cut


def _title(trace: Trace, palette: Palette) -> str:
    header, model = trace.header, trace.header.model
    quoted = '"{}"' if palette.glyphs.ascii_only else "“{}”"
    question = " ".join(header.question.split())[:_LONGEST]
    words = [f"{model.title}, {model.recipe}", f"seed {header.seed}", quoted.format(question)]
    if header.is_demo:
        adapter = "" if model.adapter is None else f" + {model.adapter.name}"
        words[0] = f"the demo model (a small one, not DiffusionGemma){adapter}"
    if not trace.complete:
        words.insert(0, "ends early")
    return " " + settled_text(safe_piece(f" {palette.glyphs.dot} ".join(words)))


def _speed(speed: float) -> str:
    """`4×`, `1/8×`, or `0.3×` where a fraction would not be exact."""
    return f"1/{1 / speed:g}×" if speed < 1 and (1 / speed).is_integer() else f"{speed:g}×"
