"""What is typed while nobody reads, kept as it was typed.

Knows a terminal's translation of Enter; knows nothing about lines. A terminal turns Enter into a line feed for programs
that read lines. What is typed ahead during a reply is read key by key later on, and there a line feed is Ctrl-J, which
begins a new line in place of sending.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

if sys.platform != "win32":
    import termios


@contextmanager
def enter_stays_enter(keyboard: BinaryIO | None) -> Iterator[None]:
    """Inside it, Enter is left as it is; where there is no terminal to read from, nothing changes."""
    changed = keyboard is not None and keyboard.isatty() and _translate(keyboard, False)
    try:
        yield
    finally:
        if changed and keyboard is not None:
            _translate(keyboard, True)


def _translate(keyboard: BinaryIO, wanted: bool) -> bool:
    """Turn the translation on or off; whether that changed anything."""
    if sys.platform == "win32":
        return False
    try:
        settings = termios.tcgetattr(keyboard.fileno())
        if bool(settings[0] & termios.ICRNL) == wanted:
            return False
        settings[0] ^= termios.ICRNL
        termios.tcsetattr(keyboard.fileno(), termios.TCSANOW, settings)
    except (OSError, ValueError, termios.error):
        return False  # the terminal is gone, and with it everything that could be typed
    return True
