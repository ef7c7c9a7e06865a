"""The terminal under progress bars: no key is echoed, and Ctrl-Z, Ctrl-\\ and another job get it as it was.

Knows how `rich` redraws rows in place, and signals; knows nothing about what the bars show.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, cast

from rich.live import Live

from localdiff.ui.keyboard_echo import KeyboardEcho
from localdiff.ui.output import Stream
from localdiff.ui.region import CURSOR_OFF, ERASE_BELOW, RESTORE
from localdiff.ui.terminal import takes_output
from localdiff.ui.terminal_signals import TerminalSignals


class ProgressTerminal:
    """A file for `rich` to draw on, and, as a context manager around the drawing, what happens on signals.

    What is drawn in the background is dropped. The rows are then drawn anew in the foreground, since `rich` would move
    the cursor up to where they were, over what the shell has printed meanwhile.

    Args:
        interrupted: whether Ctrl-C was pressed, if that raises nothing; what was typed is dropped then.
    """

    def __init__(self, stream: Stream, *, interrupted: Callable[[], bool] = lambda: False) -> None:
        self._stream = stream
        self._interrupted = interrupted
        self._live: Live | None = None
        self._dropped = False
        self._echo = KeyboardEcho(stream.file)
        self._signals = TerminalSignals(give_back=self._give_back, take=self._take)

    @property
    def file(self) -> IO[str]:
        """This object, which has all that `rich` asks of a file."""
        return cast("IO[str]", self)

    @property
    def encoding(self) -> str:
        """That of the terminal."""
        return getattr(self._stream.file, "encoding", None) or "utf-8"

    def watch(self, live: Live) -> ProgressTerminal:
        """Set what draws on it."""
        self._live = live
        return self

    def __enter__(self) -> ProgressTerminal:
        atexit.register(self._echo.restore)
        try:
            self._echo.silence()
            self._signals.start()
        except BaseException:  # Ctrl-C, or a signal that ends the process: `__exit__` will not be called
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt) or self._interrupted():
            self._echo.discard()
        self._leave()

    def _leave(self) -> None:
        self._echo.restore()
        self._signals.stop()
        atexit.unregister(self._echo.restore)

    def write(self, text: str) -> int:
        """Write a frame, or drop it."""
        if self._stream.background:
            self._forget()
            self._dropped = True
        else:
            self._stream.write((CURSOR_OFF if self._dropped else "") + text)
            self._dropped = False
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def _give_back(self) -> None:
        height = 0 if self._live is None else self._live._live_render.last_render_height
        up = f"\x1b[{height - 1}A" if height > 1 else ""
        self._send(f"\r{up}{ERASE_BELOW}{RESTORE}")
        self._echo.discard()
        self._echo.restore()
        self._forget()

    def _take(self) -> None:
        self._forget()
        self._echo.silence()
        self._send(CURSOR_OFF)

    def _forget(self) -> None:
        if self._live is not None:
            self._live._live_render._shape = None

    def _send(self, codes: str) -> None:
        """Write past the stream's buffer, which a signal handler must not re-enter, if the terminal takes it."""
        file = self._stream.file
        if not self._stream.background and takes_output(file):
            with suppress(OSError):  # a terminal that is gone has nothing to be restored
                os.write(file.fileno(), codes.encode())
