"""The terminal under progress bars: no key is echoed, and at Ctrl-Z, Ctrl-\\ or for another job it is restored.

Knows how `rich` redraws rows in place, and signals; knows nothing about what the bars show.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import IO, cast

from rich.live import Live

from localdiff.ui.output import Stream
from localdiff.ui.region import CURSOR_OFF, ERASE_BELOW, RESTORE
from localdiff.ui.terminal_guard import TerminalGuard
from localdiff.ui.terminal_signals import held


class ProgressTerminal:
    """A file for `rich` to draw on, and, as a context manager around the drawing, what happens on signals.

    What is drawn in the background is dropped. In the foreground the rows then begin anew, since `rich` would move
    the cursor up to where they were, over what the shell has printed meanwhile.

    Args:
        interrupted: whether Ctrl-C was pressed, if that raises nothing; what was typed is dropped then.
    """

    def __init__(self, stream: Stream, *, interrupted: Callable[[], bool] = lambda: False) -> None:
        self._stream = stream
        self._interrupted = interrupted
        self._live: Live | None = None
        self._begins_anew = False
        self._guard = TerminalGuard(
            stream=stream.file,
            on_resumed=self._forget,
            leave=self._erased,
            undrawn=lambda: nullcontext() if self._live is None else held(self._live._lock),
        )

    @property
    def file(self) -> IO[str]:
        """This object, which has all that `rich` asks of a file."""
        return cast("IO[str]", self)

    @property
    def encoding(self) -> str:
        """The terminal's encoding."""
        return getattr(self._stream.file, "encoding", None) or "utf-8"

    def watch(self, live: Live) -> ProgressTerminal:
        """Set the display that draws on this terminal."""
        self._live = live
        return self

    def __enter__(self) -> ProgressTerminal:
        try:
            self._guard.start()
        except BaseException:  # Ctrl-C, or a signal that ends the process: `__exit__` will not be called
            self._guard.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._guard.stop(interrupted=isinstance(error, KeyboardInterrupt) or self._interrupted())

    def write(self, text: str) -> int:
        """Write a frame, or drop it."""
        if self._guard.is_away():
            self._forget()
        else:
            begins_anew, self._begins_anew = self._begins_anew, False  # before the write, during which Ctrl-Z may come
            self._stream.write((CURSOR_OFF if begins_anew else "") + text)
        return len(text)

    def flush(self) -> None:
        """Does nothing: `write` flushes."""

    def _erased(self) -> str:
        """The codes that remove the rows, which are then forgotten."""
        height = 0 if self._live is None else self._live._live_render.last_render_height
        up = f"\x1b[{height - 1}A" if height > 1 else ""
        self._forget()
        return f"\r{up}{ERASE_BELOW}{RESTORE}"

    def _forget(self) -> None:
        """Make the next frame begin wherever the cursor then is."""
        self._begins_anew = True
        if self._live is not None:
            self._live._live_render._shape = None
