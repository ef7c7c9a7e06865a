"""The Windows console: what counts as one, and escape codes, which it prints as text until they are switched on.

Knows a console's modes; on other systems every terminal counts as one, and acts on escape codes. The mode belongs to
the window, which the shell goes on using, so it is restored at the end of the process.
"""

from __future__ import annotations

import atexit
import sys
from typing import BinaryIO, TextIO

# ENABLE_PROCESSED_OUTPUT and ENABLE_VIRTUAL_TERMINAL_PROCESSING; the second has no effect without the first.
_PROCESSED, _CODES = 0x0001, 0x0004


def is_terminal(stream: TextIO | BinaryIO) -> bool:
    """Whether a stream is a terminal; on Windows, `isatty` is also true of the device NUL."""
    return stream.isatty() and not (sys.platform == "win32" and _console(stream) is None)


def understands_codes(stream: TextIO) -> bool:
    """Whether a terminal acts on escape codes, which are switched on if need be; consoles before 2016 do not."""
    if sys.platform != "win32":
        return True
    if (console := _console(stream)) is None:
        return False
    handle, mode = console
    if mode & _CODES:
        return True
    if not _set_mode(handle, mode | _PROCESSED | _CODES):
        return False
    atexit.register(_set_mode, handle, mode)
    return True


def _console(stream: TextIO | BinaryIO) -> tuple[int, int] | None:
    """Handle and mode of a stream's console; None if it has none."""
    if sys.platform != "win32":
        return None
    import ctypes
    import msvcrt
    from ctypes import wintypes

    mode = wintypes.DWORD()
    try:
        handle = msvcrt.get_osfhandle(stream.fileno())
    except (OSError, ValueError):
        return None
    is_console = ctypes.WinDLL("kernel32").GetConsoleMode(wintypes.HANDLE(handle), ctypes.byref(mode))
    return (handle, mode.value) if is_console else None


def _set_mode(handle: int, mode: int) -> bool:
    if sys.platform != "win32":
        return False
    import ctypes
    from ctypes import wintypes

    return bool(ctypes.WinDLL("kernel32").SetConsoleMode(wintypes.HANDLE(handle), wintypes.DWORD(mode)))
