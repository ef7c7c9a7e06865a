"""What is known about a terminal: its size, whether it can be drawn on, and whether it takes output now.

Knows streams and file descriptors; knows nothing about what is drawn.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO, Literal, TextIO, TypeAlias

from localdiff.ui.console import is_terminal, understands_codes
from localdiff.view.layout import Size

if TYPE_CHECKING or sys.platform != "win32":
    import termios

LiveOption: TypeAlias = Literal["auto", "on", "off", "line"]

FALLBACK = Size(80, 24)


def terminal_size(stream: TextIO) -> Size:
    """Size of the terminal behind a stream, asked of the terminal itself: exported `COLUMNS` would freeze it."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return FALLBACK
    return Size(columns or FALLBACK.columns, rows or FALLBACK.rows)


def is_notebook_cell(env: Mapping[str, str]) -> bool:
    """Whether this is a command of a notebook (`!localdiff run …`), by a variable that Jupyter sets for its kernels.

    Its terminal takes no typing; the page only supports colours and carriage returns.
    """
    return "JPY_PARENT_PID" in env


def moves_cursor(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that acts on escape codes, unlike one with `TERM=dumb` or an old console."""
    can = env.get("TERM") not in {"dumb", "unknown"} and not is_notebook_cell(env)
    return is_terminal(stream) and can and understands_codes(stream)


def is_same_terminal(one: TextIO, other: TextIO) -> bool:
    """Whether both streams write to one terminal, so that only one of them may move its cursor."""
    if not (is_terminal(one) and is_terminal(other)):
        return False
    if sys.platform == "win32":
        return True  # a process has one console
    try:
        devices = {os.fstat(one.fileno()).st_rdev, os.fstat(other.fileno()).st_rdev}
        return len(devices) == 1 or os.stat("/dev/tty").st_rdev in devices
    except (OSError, ValueError):
        return False


def is_in_background(stream: TextIO | BinaryIO) -> bool:
    """Whether `stream` is this process's terminal, and in the hands of another job, such as the shell's prompt.

    Text may be written there, but the cursor belongs to the other job, and changing the settings stops this process.
    """
    return _is_ours(stream) is False


def is_in_foreground(stream: TextIO | BinaryIO) -> bool:
    """Whether `stream` is this process's terminal, and in the hands of this job, which may change its settings."""
    return _is_ours(stream) is True


def sends_keys(stream: TextIO) -> bool:
    """Whether this job's terminal sends each key as it is pressed: another program, such as a pager, fills the screen.

    Ask before this process has changed the terminal.
    """
    if sys.platform == "win32" or not is_in_foreground(stream):
        return False
    try:
        return not termios.tcgetattr(stream.fileno())[3] & termios.ICANON
    except (OSError, ValueError, termios.error):
        return False


def _is_ours(stream: TextIO | BinaryIO) -> bool | None:
    """Whether this job has the process's terminal; None if the stream is not a terminal, or is another session's."""
    if sys.platform == "win32":
        return None
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return None


RESTORE_PATIENCE = 1.0
"""Seconds to wait until a terminal takes output, to restore it; one that is held with Ctrl-S is then left as it is."""


def takes_output(stream: TextIO, *, patience: float = 0.0) -> bool:
    """Whether a terminal accepts output within `patience` seconds; one that is held with Ctrl-S does not.

    A Windows console cannot be asked, and counts as accepting.
    """
    if sys.platform == "win32":
        return True
    try:
        return bool(select.select([], [stream.fileno()], [], patience)[1])
    except io.UnsupportedOperation:
        return True  # not a file at all: it never blocks
    except (OSError, ValueError):
        return False


def keeps_waiting(stream: TextIO) -> bool:
    """Whether a signal is ending this process, and a write would wait for a terminal that is held."""
    return isinstance(sys.exception(), SystemExit) and not takes_output(stream, patience=RESTORE_PATIENCE)
