"""A guard that gives a terminal up while the process is continued: the terminal stays restored."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator

import pytest

from localdiff.ui.terminal_guard import TerminalGuard


class Keys:
    """Keys that note what is done to them; with `is_continued`, SIGCONT comes just when they have been restored."""

    def __init__(self) -> None:
        self.is_continued = False
        self.done: list[str] = []

    def take_over(self) -> None:
        self.done.append("take over")

    def give_back(self) -> None:
        self.restore()

    def leave(self, *, interrupted: bool) -> None:
        self.restore()

    def restore(self) -> None:
        self.done.append("restore")
        if self.is_continued:
            signal.raise_signal(signal.SIGCONT)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def guard(keys: Keys) -> Iterator[TerminalGuard]:
    """A guard that has taken over its terminal twice; from now on, what continues the process comes too late."""
    guard = TerminalGuard(stream=io.StringIO(), keys=keys)
    guard.start()
    signal.raise_signal(signal.SIGCONT)
    assert keys.done == ["take over", "take over"]
    keys.is_continued = True
    keys.done.clear()
    yield guard
    guard.stop()


def test_a_process_that_is_continued_while_it_ends_leaves_the_terminal_restored(
    guard: TerminalGuard, keys: Keys
) -> None:
    guard.stop()
    assert keys.done == ["restore"]


def test_one_that_a_signal_ends_does_so_too(guard: TerminalGuard, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `timeout -s QUIT`, which sends SIGCONT right after it."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _process, number: sent.append(number))
    signal.raise_signal(signal.SIGQUIT)
    assert (keys.done, sent) == (["restore"], [signal.SIGQUIT])


def test_a_view_that_cannot_end_takes_the_terminal_no_more(
    guard: TerminalGuard, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that is held with Ctrl-S is restored as far as possible, while a thread waits to draw on it."""
    guard.restore()
    monkeypatch.setattr("localdiff.ui.terminal_guard.is_in_background", lambda _stream: True)
    assert guard.is_away()
    monkeypatch.undo()
    assert not guard.is_away()
    assert keys.done == ["restore"]
