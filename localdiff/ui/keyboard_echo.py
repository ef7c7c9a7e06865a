"""The echo of a terminal's keys, turned off while something is drawn there.

Knows who has the terminal; knows nothing about what is drawn. On Windows, where nothing is echoed meanwhile, it does
nothing.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from localdiff.ui.keyboard_modes import KeyboardModes
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
        self._modes = KeyboardModes(keyboard, _without_echo)

    def take_over(self) -> None:
        """Turn it off, unless another process has the terminal."""
        if sys.platform == "win32":
            return
        with suppress(OSError, ValueError):  # no terminal, or that of another session
            if os.tcgetpgrp(self._keyboard.fileno()) == os.getpgrp():
                self._modes.set()

    def give_back(self) -> None:
        """Turn it on, and drop what was typed meanwhile: a shell would take it for commands, and run them."""
        self._discard()
        self.restore()

    def leave(self, *, interrupted: bool) -> None:
        """Turn it on for good; Ctrl-C drops what was typed, as it does elsewhere."""
        if interrupted:
            self._discard()
        self.restore()

    def restore(self) -> None:
        """Make it what it was; a second call does nothing."""
        self._modes.restore()

    def _discard(self) -> None:
        if not self._modes.are_set or sys.platform == "win32":
            return
        if is_in_background(self._keyboard):
            return  # it is typed for another process
        with suppress(OSError, ValueError, termios.error):  # the terminal is gone
            termios.tcflush(self._keyboard.fileno(), termios.TCIFLUSH)


def _without_echo(attributes: list[Any]) -> None:
    # Ctrl-C would discard what a slow terminal has not read yet: text of the answer, and half a frame. Without that, it
    # does not discard what was typed either, nor does Ctrl-Z; `KeyboardEcho` does.
    if sys.platform != "win32":
        attributes[3] = attributes[3] & ~termios.ECHO | termios.NOFLSH
