"""The echo of a terminal's keys, turned off while something is drawn there.

Knows `termios`; knows nothing about what is drawn. On Windows, where nothing is echoed meanwhile, it does nothing.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from localdiff.ui.terminal import is_in_background

if TYPE_CHECKING or sys.platform != "win32":
    import termios


class KeyboardEcho:
    """Turns the echo off and on again; what is typed meanwhile is for whoever reads next.

    Args:
        keyboard: the terminal that echoes keys; what is none has no echo.
    """

    def __init__(self, keyboard: TextIO) -> None:
        self._keyboard = keyboard
        self._before: list[Any] | None = None

    def take_over(self) -> None:
        """Turn it off, unless another process has the terminal."""
        if sys.platform == "win32":
            return
        try:
            descriptor = self._keyboard.fileno()
            # A background process that touches the terminal's settings would be stopped.
            if not os.isatty(descriptor) or os.tcgetpgrp(descriptor) != os.getpgrp():
                return
            settings = termios.tcgetattr(descriptor)
            if self._before is None:
                self._before = list(settings)  # before the change, which Ctrl-C may follow at once
            # Ctrl-C would discard what a slow terminal has not read yet: text of the answer, and half a frame. Without
            # that, it does not discard what was typed either, nor does Ctrl-Z; `_discard` does.
            settings[3] = settings[3] & ~termios.ECHO | termios.NOFLSH
            termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        except (OSError, ValueError, termios.error):
            self._before = None

    def give_back(self) -> None:
        """Turn it on, and drop what was typed meanwhile: a shell would take it for commands, and run them."""
        self._discard()
        self.restore()

    def leave(self, *, interrupted: bool) -> None:
        """Turn it on for good; Ctrl-C drops what was typed, as it does elsewhere."""
        if interrupted:
            self._discard()
        self.restore()

    def _discard(self) -> None:
        if self._before is None or sys.platform == "win32":
            return
        if is_in_background(self._keyboard):
            return  # it is typed for another process
        with suppress(OSError, ValueError, termios.error):  # the terminal is gone
            termios.tcflush(self._keyboard.fileno(), termios.TCIFLUSH)

    def restore(self) -> None:
        """Make it what it was; a second call does nothing."""
        if sys.platform == "win32":
            return
        # It is forgotten once it is set again: Ctrl-C may come before, and the next call is to set it. After a Ctrl-Z
        # in between, there is a new one.
        while (settings := self._before) is not None:
            # In the background whoever has taken it has set it up, and this process would be stopped.
            if not is_in_background(self._keyboard):
                with suppress(OSError, ValueError, termios.error):  # the terminal is gone
                    termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, settings)
            if self._before is settings:
                self._before = None
