"""Type-ahead: keys typed while no line is being read, kept as typed.

Knows four modes of a terminal; knows nothing about lines. Outside of a prompt a terminal echoes keys into whatever is
on the screen, turns Enter into a line feed, sends a paste as if it were typed, and obeys keys that edit. What is typed
ahead is read key by key later on, and shown then. There a line feed is Ctrl-J, which begins a new line instead of
sending, and a paste without marks would be sent line by line. And where Enter stays Enter, a terminal sees no end of a
line: Ctrl-U would take back all that it keeps, and Ctrl-D become a null byte.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from localdiff.chat.terminal_habits import keys_as_typed, keys_as_usual, lend_keys, reclaim_keys
from localdiff.ui.output import Stream
from localdiff.ui.region import PASTES_OFF, PASTES_ON
from localdiff.ui.terminal import is_in_background

if TYPE_CHECKING or sys.platform != "win32":
    import termios

PASTE = "\x1b[200~"
"""What a terminal sends before a paste."""
_PASTE, _PASTE_END = PASTE.encode(), b"\x1b[201~"
# Of a paste that is still coming, in tenths of a second.
_PATIENCE = 3


def _nothing() -> None:
    """Nobody is told."""


@contextmanager
def typing_ahead(keyboard: BinaryIO | None, screen: Stream) -> Iterator[None]:
    """Inside it, keys are neither echoed nor obeyed, Enter stays Enter, and pastes are marked.

    Ctrl-C, Ctrl-Z and Ctrl-\\ are obeyed. Without a keyboard it does nothing.

    Args:
        keyboard: standard input; None if it is no terminal, or nobody sees what is typed.
        screen: the same terminal, for output.
    """
    if keyboard is None:
        yield
        return
    with keys_as_typed(keyboard), _marks(screen, PASTES_ON, PASTES_OFF):
        yield


@contextmanager
def typing_as_usual(keyboard: BinaryIO | None, screen: Stream) -> Iterator[None]:
    """Inside it, for another program that reads from this terminal, all four modes are as outside of a chat."""
    if keyboard is None:
        yield
        return
    with keys_as_usual(keyboard), _marks(screen, PASTES_OFF, PASTES_ON):
        yield


def typed_early(keyboard: BinaryIO | None) -> str:
    """What was typed before `typing_ahead`, which is now taken from the terminal: Enter is Enter in it.

    Python starts and imports for half a second, during which the terminal makes a line feed of Enter, and nobody types
    Ctrl-J before there is a line.
    """
    return typed_ahead(keyboard).replace("\n", "\r")


def typed_ahead(keyboard: BinaryIO | None, on_cut: Callable[[], None] = _nothing) -> str:
    """What was typed inside `typing_ahead` so far, which is now taken from the terminal; every paste in it has an end.

    A terminal keeps 4,095 bytes until a line is read. The end of a longer paste is lost, and its mark with it: whoever
    waits for that takes all further keys for pasted text.

    Args:
        on_cut: called where the end of a paste is lost.
    """
    if keyboard is None or sys.platform == "win32" or not keyboard.isatty():
        return ""
    descriptor, data = keyboard.fileno(), b""
    try:
        settings = termios.tcgetattr(descriptor)
        at_once = [*settings[:6], [*settings[6]]]
        at_once[3] &= ~termios.ICANON
        at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
        try:
            termios.tcsetattr(descriptor, termios.TCSANOW, at_once)
            while more := os.read(descriptor, 4096):
                data += more
                at_once[6][termios.VTIME] = _PATIENCE if _is_open(data) else 0
                termios.tcsetattr(descriptor, termios.TCSANOW, at_once)
        finally:
            termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except (OSError, ValueError, termios.error):
        pass  # the terminal is gone
    if _is_open(data):
        data += _PASTE_END
        on_cut()
    return data.decode(errors="surrogateescape")


def _is_open(data: bytes) -> bool:
    """Whether a paste in it has no end."""
    return data.rfind(_PASTE) > data.rfind(_PASTE_END)


class TypeAhead:
    """What was typed while no line was read, in its order."""

    def __init__(self, keyboard: BinaryIO | None) -> None:
        self._keyboard = keyboard
        self._kept: list[str] = []
        self._is_cut = False

    def keep_early(self) -> None:
        """Take what was typed before `typing_ahead` from the terminal."""
        self._kept.append(typed_early(self._keyboard))

    def keep(self) -> None:
        """Take what was typed so far from the terminal, before a shell gets it."""
        if self._keyboard is not None and not is_in_background(self._keyboard):
            self._kept.append(typed_ahead(self._keyboard, self._cut))

    def give_back(self) -> None:
        """Keep what was typed so far, and have keys as outside of a chat: not every shell sees to that itself."""
        self.keep()
        if self._keyboard is not None:
            lend_keys(self._keyboard)

    def take_over(self) -> None:
        """Have keys as `typing_ahead` or `typing_as_usual` has them, once more."""
        if self._keyboard is not None:
            reclaim_keys(self._keyboard)

    def leave(self, *, interrupted: bool) -> None:
        """Change nothing: the next line takes what was typed."""

    def restore(self) -> None:
        """Change nothing: `typing_ahead` does."""

    def take(self, on_cut: Callable[[], None] = _nothing) -> str:
        """All of it, once; `on_cut` is called where the end of a paste was lost."""
        self._kept.append(typed_ahead(self._keyboard, self._cut))
        text, self._kept = "".join(self._kept), []
        if self._is_cut:
            self._is_cut = False
            on_cut()
        return text

    def _cut(self) -> None:
        self._is_cut = True


@contextmanager
def _marks(screen: Stream, before: str, after: str) -> Iterator[None]:
    try:
        screen.write(before)
        yield
    finally:
        screen.write(after)
