"""Draws scene after scene in a terminal's region, and measures what that costs.

Knows a stream, a size and a clock; knows nothing about threads or events. One scene is one write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from localdiff.ui.region import Region
from localdiff.view.ansi import encode_row
from localdiff.view.canvas_view import CanvasView, Drawn
from localdiff.view.layout import Size
from localdiff.view.scene import Scene
from localdiff.view.style import Row

REPAINT_SECONDS = 1.0
"""All rows are sent again this often, which repairs what an echoed key or another program left on them."""

RENDER_SHARE = 40
"""Drawing takes the interpreter from the engine, so it may take a fortieth of the time. The faster of the last two
frames counts: the other may have run Python's garbage collector, and the canvas would freeze for a second."""

WRITE_SHARE = 4

LONGEST_WAIT = 1.0
"""Longest pause after a slow write, in seconds: a terminal held with Ctrl-S is drawn on again soon after Ctrl-Q."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A scene, and what is printed above the region with it: whole lines, made safe."""

    scene: Scene
    above: str = ""


class Painter:
    """The only thing that writes to the terminal while a canvas is on it.

    Args:
        size: current size of the terminal; asked before every frame.
        one_line: draw the status line whatever the size.
        stopping: whether the run has been asked to stop, which is then shown.
        away: whether another job has the terminal now: final text is still printed, but no cursor is moved.
        work_clock: CPU seconds of the calling thread; time spent waiting takes nothing from the engine.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        view: CanvasView,
        size: Callable[[], Size],
        one_line: bool = False,
        fps: float = 20.0,
        stopping: Callable[[], bool] = lambda: False,
        away: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._stream = stream
        self._view = view
        self._size = size
        self._one_line = one_line
        self._shortest = 1.0 / fps
        self._stopping = stopping
        self._away = away
        self._clock, self._work_clock = clock, work_clock
        self._region = Region()
        self._drawn = Drawn()
        self._encoded: list[tuple[Row, str]] = []
        self._scene: Scene | None = None
        self._drawn_size: Size | None = None
        self._repainted = clock()
        self._rendered = self._render_seconds = self._write_seconds = 0.0

    @property
    def interval(self) -> float:
        """Seconds until the next frame: drawing may take a fortieth of the time and writing a quarter."""
        after_write = min(WRITE_SHARE * self._write_seconds, LONGEST_WAIT)
        return max(self._shortest, RENDER_SHARE * self._render_seconds, after_write)

    @property
    def is_drawn(self) -> bool:
        """Whether there is a region on the screen."""
        return self._region.height > 0

    def paint(self, frame: Frame) -> None:
        """Draw a frame; errors of the stream propagate."""
        start, began = self._clock(), self._work_clock()
        size = self._size()
        scene = replace(frame.scene, stopping=True) if self._stopping() else frame.scene
        if self._is_away():
            self._write(frame.above)
            self._scene = scene
            return
        picture = self._view.picture(scene, size, self._drawn, one_line=self._one_line)
        rows = self._encode(picture.rows)
        if start - self._repainted >= REPAINT_SECONDS:
            self._region.forget()
            self._repainted = start
        text = self._region.frame(rows, size, above=frame.above)
        before, self._rendered = self._rendered, self._work_clock() - began
        self._render_seconds = min(before, self._rendered)
        self._write(text)
        self._scene, self._drawn, self._drawn_size = scene, picture.drawn, size

    def refresh(self) -> None:
        """Draw the last scene again if it is not on the screen, the size has changed, or the run is about to stop."""
        if self._scene is None or self._is_away():
            return
        if self._size() != self._drawn_size or (self._stopping() and not self._scene.stopping):
            self.paint(Frame(scene=self._scene))

    def restart(self) -> None:
        """Begin a new region below, at the next refresh at the latest, after something else was on the screen."""
        self._region.abandon()
        self._drawn_size = None

    def step_aside(self) -> None:
        """Remove the region so that something else can be printed there; the next frame begins a new one below."""
        if self.is_drawn and not self._is_away():
            self._write(self._region.close())
            self._drawn_size = None

    def finish(self, text: str) -> None:
        """Replace the region by whole lines of final text."""
        if self._is_away():
            self._write(text)
        elif text or self.is_drawn:
            self._write(self._region.close(text))

    def _is_away(self) -> bool:
        """Whether another job has the terminal; what was drawn is then no longer where it was."""
        away = self._away()
        if away:
            self.restart()
        return away

    def _encode(self, rows: Sequence[Row]) -> list[str]:
        """Rows as text; a row that was in the same place in the previous frame is not encoded again."""
        previous = self._encoded + [(None, "")] * (len(rows) - len(self._encoded))
        self._encoded = [
            (row, text if row == before else encode_row(row))
            for row, (before, text) in zip(rows, previous, strict=False)
        ]
        return [text for _, text in self._encoded]

    def _write(self, text: str) -> None:
        if not text:
            return
        start = self._clock()
        self._stream.write(text)
        self._stream.flush()
        self._write_seconds = self._clock() - start
