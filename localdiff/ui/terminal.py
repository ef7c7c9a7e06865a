"""Size and echo of the terminal, and its restoration on every exit.

Knows file descriptors, signals and `termios`; knows nothing about what is drawn. Whatever ends the process,
short of a signal that cannot be caught, the cursor, auto-wrap, colours, synchronized updates and the echo
are restored.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Literal, TextIO, TypeAlias

from localdiff.ui.region import LEAVE
from localdiff.view.layout import Size

if sys.platform != "win32":
    import termios

LiveWish: TypeAlias = Literal["auto", "on", "off", "line"]
LiveMode: TypeAlias = Literal["canvas", "line", "off"]

TERMINATED = 143
FALLBACK = Size(80, 24)
_PATIENCE = 0.2


def terminal_size(stream: TextIO) -> Size:
    """Size of the terminal behind a stream, asked of the terminal itself: exported `COLUMNS` would freeze it."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return FALLBACK
    return Size(columns or FALLBACK.columns, rows or FALLBACK.rows)


def live_mode(wish: LiveWish, *, stream: TextIO, env: Mapping[str, str]) -> LiveMode:
    """What to draw on `stream`.

    Nothing is drawn where there is no terminal or its cursor cannot move (`TERM=dumb`), whatever is wished for.
    """
    if wish == "off" or not stream.isatty() or env.get("TERM") in {"dumb", "unknown"}:
        return "off"
    return "line" if wish == "line" else "canvas"


def is_same_terminal(one: TextIO, other: TextIO) -> bool:
    """Whether both streams write to one terminal, so that only one of them may move its cursor."""
    if not (one.isatty() and other.isatty()):
        return False
    try:
        devices = {os.fstat(one.fileno()).st_rdev, os.fstat(other.fileno()).st_rdev}
        return len(devices) == 1 or os.stat("/dev/tty").st_rdev in devices
    except (OSError, ValueError):
        return False


def takes_output(stream: TextIO, *, patience: float = 0.0) -> bool:
    """Whether a terminal accepts output within `patience` seconds; one that is held with Ctrl-S does not."""
    try:
        return bool(select.select([], [stream.fileno()], [], patience)[1])
    except io.UnsupportedOperation:
        return True  # not a file at all: it never blocks
    except (OSError, ValueError):
        return False


class TerminalGuard:
    """Restores a terminal on every way out.

    Between `start` and `stop`: SIGTERM unwinds the main thread as `SystemExit(143)`; a hangup and Ctrl-\\ end the
    process as always, after the terminal has been restored; keys are not echoed into the picture; Ctrl-Z restores
    it before the process stops; and an exit that skips `stop` still restores it. A signal that other code handles, or
    that is ignored, is left alone.

    Args:
        stream: the terminal that is drawn on.
        keyboard: the terminal that echoes keys, or None to leave its echo alone.
        resumed: called after the process was stopped and continued, from a signal handler.
    """

    def __init__(
        self, *, stream: TextIO, keyboard: TextIO | None = None, resumed: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._keyboard = keyboard
        self._resumed = resumed
        self._handlers: dict[int, object] = {}
        self._echo: list[object] | None = None
        self._started = False

    def start(self) -> None:
        """Take over the terminal."""
        if self._started:
            return
        self._started = True
        atexit.register(self.restore)
        self._silence_keys()
        if threading.current_thread() is threading.main_thread():
            self._handle(signal.SIGTERM, _unwind)
            if sys.platform != "win32":
                self._handle(signal.SIGHUP, self._on_fatal)
                self._handle(signal.SIGQUIT, self._on_fatal)
                self._handle(signal.SIGTSTP, self._on_suspend)
                self._handle(signal.SIGCONT, self._on_resumed)

    def stop(self) -> None:
        """Restore the terminal; call it after the last write."""
        if not self._started:
            return
        self._started = False
        self._echo_keys()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._handlers.clear()
        atexit.unregister(self.restore)

    def restore(self) -> None:
        """Remove the canvas and restore the terminal, now; never waits long for a terminal that is stuck."""
        self._echo_keys()
        try:
            if takes_output(self._stream, patience=_PATIENCE):
                os.write(self._stream.fileno(), LEAVE.encode())
        except (OSError, ValueError):
            # The terminal is gone, and everything to restore with it.
            return

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        before = signal.getsignal(number)
        if before is signal.SIG_DFL:
            self._handlers[number] = before
            signal.signal(number, handler)

    def _on_fatal(self, number: int, _frame: FrameType | None) -> None:
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _on_suspend(self, number: int, frame: FrameType | None) -> None:
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # It goes on, perhaps without having stopped: the system stops no process that nobody could continue.
        self._on_resumed(number, frame)

    def _on_resumed(self, _number: int, _frame: FrameType | None) -> None:
        self._silence_keys()
        if sys.platform != "win32" and signal.SIGTSTP in self._handlers:
            signal.signal(signal.SIGTSTP, self._on_suspend)
        if self._resumed is not None:
            self._resumed()

    def _silence_keys(self) -> None:
        if self._keyboard is None or sys.platform == "win32":
            return
        try:
            descriptor = self._keyboard.fileno()
            # A background process that touches the terminal's settings would be stopped.
            if not os.isatty(descriptor) or os.tcgetpgrp(descriptor) != os.getpgrp():
                return
            settings = termios.tcgetattr(descriptor)
            if self._echo is None:
                self._echo = list(settings)
            # Ctrl-C would discard what a slow terminal has not read yet: text of the answer, and half a frame.
            settings[3] = settings[3] & ~termios.ECHO | termios.NOFLSH
            termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        except (OSError, ValueError, termios.error):
            self._echo = None

    def _echo_keys(self) -> None:
        if self._echo is None or self._keyboard is None or sys.platform == "win32":
            return
        settings, self._echo = self._echo, None
        try:
            termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, settings)  # type: ignore[arg-type]
        except (OSError, ValueError, termios.error):
            return


def _unwind(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)
