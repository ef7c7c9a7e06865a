"""Keys of the Windows console, which hands them out one by one; terminals elsewhere send sequences of bytes.

Knows key codes; knows nothing about what the keys do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

_PAUSE = 0.01
"""Seconds between polls of the console, which cannot be waited for with a time limit."""
_NAMES: Final = {" ": "space", "\r": "enter", "\n": "enter", "\x1b": "escape"}
_PREFIXES = ("\x00", "\xe0")
"""What precedes the code of a key that is not a character; the second is also the letter à."""
_CODES: Final = {
    "H": "up",
    "P": "down",
    "M": "right",
    "K": "left",
    "G": "home",
    "O": "end",
    "I": "page up",
    "Q": "page down",
}


def console_key(timeout: float | None, is_changed: Callable[[], bool]) -> str | None:
    """The next key by name, or None after `timeout` seconds, or once `is_changed` is true.

    Ctrl-C is not a key here: it interrupts.
    """
    if sys.platform != "win32":
        raise AssertionError("other systems have no such console")
    import msvcrt

    end = None if timeout is None else time.monotonic() + timeout
    while not msvcrt.kbhit():
        left = _PAUSE if end is None else min(end - time.monotonic(), _PAUSE)
        if left <= 0 or is_changed():
            return None
        time.sleep(left)
    key = msvcrt.getwch()
    if key in _PREFIXES and msvcrt.kbhit():
        code = msvcrt.getwch()
        return _CODES.get(code, key + code)
    return _NAMES.get(key, key)
