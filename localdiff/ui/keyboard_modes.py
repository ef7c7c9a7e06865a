"""What a terminal does with keys before a program reads them, changed for a while and restored.

Knows `termios` and jobs; knows nothing about what is drawn. On Windows, where nothing is echoed meanwhile, it does
nothing.
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
    """The modes of one terminal, which nobody changes while another job has it: that would stop this process.

    Args:
        keyboard: the terminal; what is none has no modes.
        change: changes attributes, which are as `termios.tcgetattr` gives them.
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
        """Change them, which they may be already: a shell that had the terminal meanwhile has set up its own."""
        if sys.platform == "win32" or is_in_background(self._keyboard):
            return
        try:
            attributes = termios.tcgetattr(self._keyboard.fileno())
            # Before the change, which Ctrl-C may follow at once; a new list, which tells `restore` that they were set.
            before = self._before or attributes
            self._before = [*before[:6], [*before[6]]]
            self._change(attributes)
            termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, attributes)
        except (OSError, ValueError, termios.error):
            self._before = None

    def lend(self) -> None:
        """Make them what they were, until `set`; whatever they become meanwhile, `restore` makes them that again."""
        # In the background whoever has taken the terminal has set it up.
        if sys.platform != "win32" and self._before is not None and not is_in_background(self._keyboard):
            with suppress(OSError, ValueError, termios.error):  # the terminal is gone
                termios.tcsetattr(self._keyboard.fileno(), termios.TCSANOW, self._before)

    def restore(self) -> None:
        """Make them what they were, for good; a second call does nothing."""
        # They are forgotten once they are set again: Ctrl-C may come before, and the next call is to set them. After a
        # Ctrl-Z or SIGCONT in between, there are new ones.
        while (attributes := self._before) is not None:
            self.lend()
            if self._before is attributes:
                self._before = None


def forget_typed(keyboard: TextIO | BinaryIO) -> None:
    """Drop what was typed and is not read yet; what is no terminal has none."""
    if sys.platform != "win32":
        with suppress(OSError, ValueError, termios.error):
            termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)


class KeyboardEcho(KeyboardModes):
    """The modes in which a terminal echoes no key; what is typed meanwhile is for whoever reads next."""

    def __init__(self, keyboard: TextIO) -> None:
        super().__init__(keyboard, _without_echo)

    def take_over(self) -> None:
        """Turn the echo off, unless another process has the terminal."""
        if is_in_foreground(self._keyboard):
            self.set()

    def give_back(self) -> None:
        """Turn it on, and drop what was typed meanwhile: a shell would take it for commands, and run them."""
        self.leave(interrupted=True)

    def leave(self, *, interrupted: bool) -> None:
        """Turn it on for good; Ctrl-C drops what was typed, as it does elsewhere."""
        # In the background it is typed for another process.
        if interrupted and self._before is not None and not is_in_background(self._keyboard):
            forget_typed(self._keyboard)
        self.restore()


def _without_echo(attributes: list[Any]) -> None:
    # Ctrl-C would discard what a slow terminal has not read yet: text of the answer, and half a frame. Without that, it
    # does not discard what was typed either, nor does Ctrl-Z; `KeyboardEcho` does.
    if sys.platform != "win32":
        attributes[3] = attributes[3] & ~termios.ECHO | termios.NOFLSH
