"""The terminal during a replay: alternate screen, keys without echo, everything restored afterwards.

Knows modes, signals and key sequences; knows nothing about what is shown. Rows are overwritten and never erased
first; only rows that changed are sent.
"""

from __future__ import annotations

import atexit
import errno
import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TextIO

from localdiff.ui.console import is_terminal
from localdiff.ui.console_keys import console_key
from localdiff.ui.interrupt import Handler
from localdiff.ui.output import Stream
from localdiff.ui.region import CURSOR_OFF, ERASE_BELOW, ERASE_REST_OF_ROW, RESTORE, SYNC_OFF, SYNC_ON, WRAP_OFF
from localdiff.ui.terminal import RESTORE_PATIENCE, is_in_background, takes_output, terminal_size
from localdiff.ui.terminal_signals import TerminalSignals
from localdiff.view.layout import Size

if TYPE_CHECKING or sys.platform != "win32":
    import termios
    import tty

ALTERNATE_ON, ALTERNATE_OFF = "\x1b[?1049h", "\x1b[?1049l"

# How long the rest of a key's sequence may take; nothing follows a lone Escape.
_SEQUENCE_SECONDS = 0.05

_KEYS: Final = {
    " ": "space",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}


def can_play(keyboard: TextIO | None, screen: Stream) -> bool:
    """Whether keys can be read from the first stream and a moving picture can be drawn on the second."""
    return keyboard is not None and is_terminal(keyboard) and screen.moving


class ReplayScreen:
    """The terminal during a replay, as a context manager."""

    def __init__(self, keyboard: TextIO, screen: TextIO) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._rows: tuple[str, ...] | None = None
        self._modes: list[Any] = []
        self._is_taken = False
        self._wake_read, self._wake_write = os.pipe()
        changes: dict[int, Handler] = {}
        if sys.platform != "win32":
            os.set_blocking(self._wake_write, False)
            changes = {signal.SIGWINCH: self._on_change}
        self._signals = TerminalSignals(give_back=self._give_back, take=self._on_continued, more=changes)

    def __enter__(self) -> ReplayScreen:
        atexit.register(self._give_back)
        try:
            self._screen.flush()
            self._signals.start()
            self._take()
        except BaseException:  # Ctrl-C, or a signal that ends the process: `__exit__` will not be called
            self._leave()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._signals.end()
        self._give_back()
        self._signals.stop()
        atexit.unregister(self._give_back)
        os.close(self._wake_read)
        os.close(self._wake_write)

    @property
    def size(self) -> Size:
        """Current size of the terminal."""
        return terminal_size(self._screen)

    def draw(self, rows: Sequence[str]) -> None:
        """Show encoded rows, each under the width of the terminal, from the first row on."""
        before = self._rows
        if before == tuple(rows):
            return
        parts = [SYNC_ON, CURSOR_OFF, WRAP_OFF]
        for index, row in enumerate(rows):
            if before is None or index >= len(before) or before[index] != row:
                parts += [f"\x1b[{index + 1};1H", row, ERASE_REST_OF_ROW]
        if len(rows) < self.size.rows:
            parts += [f"\x1b[{len(rows) + 1};1H", ERASE_BELOW]
        self._write("".join([*parts, SYNC_OFF]))
        self._rows = tuple(rows)

    def key(self, timeout: float | None) -> str | None:
        """The next key by name, or None after `timeout` seconds, or when the terminal has changed."""
        if sys.platform == "win32":
            return self._console_key(timeout)
        keyboard = self._keyboard.fileno()
        ready, _, _ = select.select([keyboard, self._wake_read], [], [], timeout)
        if self._wake_read in ready:
            os.read(self._wake_read, 1024)
            self._rows = None
            return None
        if not ready:
            return None
        data = os.read(keyboard, 1)
        if not data:  # the terminal is gone
            return "q"
        while data.startswith(b"\x1b") and select.select([keyboard], [], [], _SEQUENCE_SECONDS)[0]:
            more = os.read(keyboard, 1)
            data += more
            if not more or (len(data) > 2 and 0x40 <= more[0] <= 0x7E) or len(data) > 16:
                break
        text = data.decode("utf-8", "replace")
        return _KEYS.get(text, text)

    def _console_key(self, timeout: float | None) -> str | None:
        """As `key`; here no signal reports that the window's size has changed."""
        size = self.size
        key = console_key(timeout, lambda: self.size != size)
        if self.size != size:
            self._rows = None
        return key

    def _take(self) -> None:
        while not self._sets_modes():
            pass
        self._rows = None
        self._is_taken = True
        self._write(ALTERNATE_ON + CURSOR_OFF)

    def _sets_modes(self) -> bool:
        """Set up the keyboard, and return whether it worked: in the background it stops the process; then retry."""
        if sys.platform == "win32":
            return True  # a console echoes no key that a program reads at once
        keyboard = self._keyboard.fileno()
        self._modes = list(termios.tcgetattr(keyboard))
        try:
            tty.setcbreak(keyboard, termios.TCSANOW)
        except termios.error as error:
            if error.args[0] != errno.EINTR:
                raise
            return False
        return True

    def _give_back(self) -> None:
        if sys.platform == "win32":
            if self._is_taken:
                self._is_taken = False
                with suppress(OSError):  # its window is closed
                    self._write(RESTORE + ALTERNATE_OFF + RESTORE)
            return
        # The modes are forgotten only once they are back: Ctrl-C may come before that, and the next call must set
        # them. After a Ctrl-Z in between, there are new ones.
        while modes := self._modes:
            with suppress(OSError, ValueError, termios.error):  # a terminal that hung up is gone, its modes with it
                if not is_in_background(self._keyboard):  # in the background this would stop the process
                    termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, modes)
                    if takes_output(self._screen, patience=RESTORE_PATIENCE):
                        self._write(RESTORE + ALTERNATE_OFF + RESTORE)
            if self._modes is modes:
                self._modes = []

    def _write(self, text: str) -> None:
        """Write past the stream's buffer, which a signal handler must not re-enter."""
        data = memoryview(text.encode(self._screen.encoding or "utf-8", "replace"))
        if sys.platform == "win32":  # a console takes bytes written to its descriptor for an old code page
            self._screen.buffer.write(data)
            self._screen.buffer.flush()
            return
        while data:
            data = data[os.write(self._screen.fileno(), data) :]

    def _on_change(self, _number: int, _frame: FrameType | None) -> None:
        os.write(self._wake_write, b"!")

    def _on_continued(self) -> None:
        if not self._modes:
            self._take()
        os.write(self._wake_write, b"!")
