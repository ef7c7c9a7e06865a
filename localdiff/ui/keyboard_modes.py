"""What a terminal does with keys before a program reads them, changed for a while and restored.

Knows `termios` and jobs; knows nothing about what is drawn. Does nothing on Windows, where no key is echoed meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from localdiff.ui.terminal import is_in_background, is_in_foreground

if TYPE_CHECKING or sys.platform != "win32":
    import termios


class KeyboardModes:
    """The modes of one terminal. They are not changed while another job has it, which would stop this process.

    Args:
        keyboard: the terminal; anything else has no modes.
        change: changes attributes from `termios.tcgetattr` in place.
    """

    def __init__(self, keyboard: TextIO | BinaryIO, change: Callable[[list[Any]], None]) -> None:
        self._keyboard = keyboard
        self._change = change
        self._before: list[Any] | None = None

    @property
    def are_set(self) -> bool:
        """Whether there is something to restore."""
        return self._before is not None

    def set(self) -> None:
        """Change the modes, even if they already are: a shell that had the terminal meanwhile has set its own."""
        if sys.platform == "win32" or is_in_background(self._keyboard):
            return
        try:
            attributes = termios.tcgetattr(self._keyboard.fileno())
            # Before the change, which Ctrl-C may follow at once; a new list tells `restore` that they were set again.
            before = self._before or attributes
            self._before = [*before[:6], [*before[6]]]
            self._change(attributes)
            termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, attributes)
        except (OSError, ValueError, termios.error):
            self._before = None

    def lend(self) -> None:
        """Put the former modes back, until `set`; `restore` puts the same ones back, whatever is changed meanwhile."""
        # In the background, whichever job has the terminal has set it up.
        if sys.platform != "win32" and self._before is not None and not is_in_background(self._keyboard):
            with suppress(OSError, ValueError, termios.error):  # the terminal is gone
                termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, self._before)

    def restore(self) -> None:
        """Put the former modes back for good; a second call does nothing."""
        # The modes are forgotten only once they are back: Ctrl-C may come before that, and the next call must set
        # them. After a Ctrl-Z or SIGCONT in between, there are new ones.
        while (attributes := self._before) is not None:
            self.lend()
            if self._before is attributes:
                self._before = None


def forget_typed(keyboard: TextIO | BinaryIO) -> None:
    """Drop what was typed and not read yet; does nothing for anything but a terminal."""
    if sys.platform != "win32":
        with suppress(OSError, ValueError, termios.error):
            termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)


class KeyboardEcho(KeyboardModes):
    """The modes in which a terminal echoes no key; what is typed meanwhile goes to whoever reads next."""

    def __init__(self, keyboard: TextIO) -> None:
        super().__init__(keyboard, _without_echo)

    def take_over(self) -> None:
        """Turn the echo off, unless another process has the terminal."""
        if is_in_foreground(self._keyboard):
            self.set()

    def give_back(self) -> None:
        """Turn the echo on, and drop what was typed meanwhile: a shell would run it as commands."""
        self.leave(interrupted=True)

    def leave(self, *, interrupted: bool) -> None:
        """Turn the echo on for good; Ctrl-C drops what was typed, as it does elsewhere."""
        # In the background, input is typed for another process.
        if interrupted and self._before is not None and not is_in_background(self._keyboard):
            forget_typed(self._keyboard)
        self.restore()


def _without_echo(attributes: list[Any]) -> None:
    # Without NOFLSH, Ctrl-C would discard what a slow terminal has not read yet: text of the answer, and half a
    # frame. With it, Ctrl-C and Ctrl-Z do not discard what was typed either; `KeyboardEcho` does.
    if sys.platform != "win32":
        attributes[3] = attributes[3] & ~termios.ECHO | termios.NOFLSH
