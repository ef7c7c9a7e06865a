"""What a terminal does to keys before a program reads them: Enter becomes a line feed, keys are echoed, and some edit.

Knows the attributes of a terminal; knows nothing about chats. Only where there is `termios`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeAlias

assert sys.platform != "win32"

import termios  # noqa: E402

from localdiff.ui.terminal import is_in_background  # noqa: E402

_EDITING = (termios.VEOF, termios.VERASE, termios.VKILL, termios.VWERASE, termios.VREPRINT, termios.VLNEXT)
"""Keys that a terminal obeys until Enter, which change or end what was typed before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Habits:
    """Whether Enter becomes a line feed, whether keys are echoed, and which characters edit, by `_EDITING`."""

    translates: bool
    echoes: bool
    editing: tuple[Any, ...]

    @classmethod
    def of(cls, attributes: list[Any]) -> _Habits:
        return cls(
            translates=bool(attributes[0] & termios.ICRNL),
            echoes=bool(attributes[3] & termios.ECHO),
            editing=tuple(attributes[6][key] for key in _EDITING),
        )

    def put(self, attributes: list[Any]) -> None:
        attributes[0] = attributes[0] | termios.ICRNL if self.translates else attributes[0] & ~termios.ICRNL
        attributes[3] = attributes[3] | termios.ECHO if self.echoes else attributes[3] & ~termios.ECHO
        for key, character in zip(_EDITING, self.editing, strict=True):
            attributes[6][key] = character


_Change: TypeAlias = Callable[[_Habits], _Habits]

_editing: dict[int, tuple[Any, ...]] = {}
"""Descriptor of a terminal → what edits there as usual, for programs that read from it meanwhile."""


@contextmanager
def keys_as_typed(keyboard: BinaryIO) -> Iterator[None]:
    """Inside it, a terminal has none of these habits; it still obeys Ctrl-C, Ctrl-Z and Ctrl-\\."""

    def none(before: _Habits) -> _Habits:
        unset = bytes([os.fpathconf(keyboard.fileno(), "PC_VDISABLE") & 0xFF])
        nothing = (unset,) * len(_EDITING)
        if before.editing != nothing:  # once more, after a shell had the terminal
            _editing[keyboard.fileno()] = before.editing
        return _Habits(translates=False, echoes=False, editing=nothing)

    with _changed(keyboard, none):
        yield


@contextmanager
def keys_as_usual(keyboard: BinaryIO) -> Iterator[None]:
    """Inside it, a terminal has those of before `keys_as_typed`, and echoes."""

    def usual(before: _Habits) -> _Habits:
        editing = _editing.get(keyboard.fileno(), before.editing)
        return replace(before, translates=True, echoes=True, editing=editing)

    with _changed(keyboard, usual):
        yield


@contextmanager
def _changed(keyboard: BinaryIO, change: _Change) -> Iterator[None]:
    before = _change(keyboard, change)
    try:
        yield
    finally:
        if before is not None:
            _change(keyboard, lambda _: before)


def _change(keyboard: BinaryIO, change: _Change) -> _Habits | None:
    """Gives a terminal other habits, and returns those that it had; None where it is another job's now, or gone.

    A process that is told to end after it was stopped has its terminal no more: there a change would stop it again.
    """
    if is_in_background(keyboard):
        return None
    try:
        attributes = termios.tcgetattr(keyboard.fileno())
        before = _Habits.of(attributes)
        change(before).put(attributes)
        termios.tcsetattr(keyboard.fileno(), termios.TCSANOW, attributes)
    except (OSError, ValueError, termios.error):
        return None
    return before
