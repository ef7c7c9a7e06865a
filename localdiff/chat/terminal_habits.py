"""What a terminal does to keys before a program reads them: Enter becomes a line feed, keys are echoed, some edit, and
Ctrl-C and Ctrl-Z drop what was typed before, and what the terminal has not shown yet.

Knows the attributes of a terminal; knows nothing about chats. On Windows it changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from localdiff.ui.terminal import is_in_background

if TYPE_CHECKING or sys.platform != "win32":
    import termios

_EDITING = ("VEOF", "VERASE", "VKILL", "VWERASE", "VREPRINT", "VLNEXT")
"""Keys that a terminal obeys until Enter, which change or end what was typed before, as `termios` calls them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Habits:
    """Whether Enter becomes a line feed, keys are echoed, Ctrl-C drops; the characters of `_EDITING`, None for none."""

    translates: bool
    echoes: bool
    drops: bool
    editing: tuple[Any, ...] | None


_Change: TypeAlias = Callable[[_Habits], _Habits]

_editing: dict[int, tuple[Any, ...]] = {}
"""Descriptor of a terminal → what edits there as usual, for programs that read from it meanwhile."""
_changes: list[_Change] = []
"""Those that contexts of this module make now, the innermost last."""


@contextmanager
def keys_as_typed(keyboard: BinaryIO) -> Iterator[None]:
    """Inside it, a terminal has none of these habits; it still obeys Ctrl-C, Ctrl-Z and Ctrl-\\."""

    def none(before: _Habits) -> _Habits:
        if before.editing is not None:  # else it begins once more, after a shell had the terminal
            _editing[keyboard.fileno()] = before.editing
        return _Habits(translates=False, echoes=False, drops=False, editing=None)

    with _changed(keyboard, none):
        yield


@contextmanager
def keys_as_usual(keyboard: BinaryIO) -> Iterator[None]:
    """Inside it, a terminal has those of before `keys_as_typed`, and echoes and drops."""
    with _changed(keyboard, _usual(keyboard)):
        yield


def lend_keys(keyboard: BinaryIO) -> None:
    """Give a terminal the habits of `keys_as_usual` until `reclaim_keys`; for a signal handler."""
    _change(keyboard, _usual(keyboard))


def reclaim_keys(keyboard: BinaryIO) -> None:
    """Give a terminal the habits of the context that it is in, whoever changed them; for a signal handler.

    A shell that had it meanwhile leaves habits of its own, also where nothing was lent, as after `kill -STOP`.
    """
    if _changes:
        _change(keyboard, _changes[-1])


def _usual(keyboard: BinaryIO) -> _Change:
    def usual(before: _Habits) -> _Habits:
        editing = _editing.get(keyboard.fileno(), before.editing)
        return _Habits(translates=True, echoes=True, drops=True, editing=editing)

    return usual


@contextmanager
def _changed(keyboard: BinaryIO, change: _Change) -> Iterator[None]:
    before: _Habits | None = None

    def noted(habits: _Habits) -> _Habits:
        nonlocal before
        before = habits  # before the change, which Ctrl-C may follow at once
        return change(habits)

    _changes.append(change)
    try:
        _change(keyboard, noted)
        yield
    finally:
        _changes.pop()
        if (habits := before) is not None:
            _change(keyboard, lambda _: habits)


def _change(keyboard: BinaryIO, change: _Change) -> None:
    """Gives a terminal other habits, made of those that it has, unless it is another job's now, or gone.

    A process that is told to end after it was stopped has its terminal no more: there a change would stop it again.
    """
    if sys.platform == "win32" or is_in_background(keyboard):
        return
    with suppress(OSError, ValueError, termios.error):
        attributes = termios.tcgetattr(keyboard.fileno())
        flags, modes, characters = attributes[0], attributes[3], attributes[6]
        unset = bytes([os.fpathconf(keyboard.fileno(), "PC_VDISABLE") & 0xFF])
        places = [getattr(termios, name) for name in _EDITING]
        editing = tuple(characters[place] for place in places)
        before = _Habits(
            translates=bool(flags & termios.ICRNL),
            echoes=bool(modes & termios.ECHO),
            drops=not modes & termios.NOFLSH,
            editing=None if set(editing) == {unset} else editing,
        )
        after = change(before)
        attributes[0] = flags | termios.ICRNL if after.translates else flags & ~termios.ICRNL
        modes = modes | termios.ECHO if after.echoes else modes & ~termios.ECHO
        attributes[3] = modes & ~termios.NOFLSH if after.drops else modes | termios.NOFLSH
        for place, character in zip(places, after.editing or (unset,) * len(places), strict=True):
            characters[place] = character
        termios.tcsetattr(keyboard.fileno(), termios.TCSANOW, attributes)
