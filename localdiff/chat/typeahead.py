"""Type-ahead: keys typed while no line is being read, kept as typed.

Knows two modes of a terminal; knows nothing about lines. Outside of a prompt a terminal echoes keys into whatever is
on the screen, and turns Enter into a line feed. What is typed ahead is read key by key later on, and shown then;
there a line feed is Ctrl-J, which begins a new line instead of sending.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

if sys.platform != "win32":
    import termios


@contextmanager
def typing_ahead(keyboard: BinaryIO | None) -> Iterator[None]:
    """Inside it, keys are not echoed and Enter stays Enter; does nothing where `keyboard` is no terminal."""
    with _habits(keyboard, wanted=False):
        yield


@contextmanager
def typing_as_usual(keyboard: BinaryIO | None) -> Iterator[None]:
    """Inside it, for another program that reads from this terminal, both modes are as outside of a chat."""
    with _habits(keyboard, wanted=True):
        yield


def typed_early(keyboard: BinaryIO | None) -> str:
    """What was typed before `typing_ahead`, which is now taken from the terminal: Enter is Enter in it.

    Python starts and imports for half a second, during which the terminal makes a line feed of Enter, and nobody types
    Ctrl-J before there is a line.
    """
    if keyboard is None or sys.platform == "win32" or not keyboard.isatty():
        return ""
    descriptor, data = keyboard.fileno(), b""
    try:
        settings = termios.tcgetattr(descriptor)
        at_once = [*settings[:6], [*settings[6]]]
        at_once[3] &= ~termios.ICANON
        at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
        termios.tcsetattr(descriptor, termios.TCSANOW, at_once)
        try:
            while more := os.read(descriptor, 4096):
                data += more
        finally:
            termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except (OSError, ValueError, termios.error):
        pass  # the terminal is gone
    return data.decode(errors="surrogateescape").replace("\n", "\r")


@contextmanager
def _habits(keyboard: BinaryIO | None, *, wanted: bool) -> Iterator[None]:
    before = _set(keyboard, (wanted, wanted))
    try:
        yield
    finally:
        if before is not None:
            _set(keyboard, before)


def _set(keyboard: BinaryIO | None, wanted: tuple[bool, bool]) -> tuple[bool, bool] | None:
    """Turns translation and echo on or off, and returns what they were; None where that is impossible."""
    if keyboard is None or sys.platform == "win32" or not keyboard.isatty():
        return None
    try:
        settings = termios.tcgetattr(keyboard.fileno())
        before = bool(settings[0] & termios.ICRNL), bool(settings[3] & termios.ECHO)
        settings[0] = settings[0] | termios.ICRNL if wanted[0] else settings[0] & ~termios.ICRNL
        settings[3] = settings[3] | termios.ECHO if wanted[1] else settings[3] & ~termios.ECHO
        termios.tcsetattr(keyboard.fileno(), termios.TCSANOW, settings)
    except (OSError, ValueError, termios.error):
        return None  # the terminal is gone
    return before
