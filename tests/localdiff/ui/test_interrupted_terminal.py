"""Ctrl-C, or a signal that ends the process, while a terminal is being set up or restored: its modes end as before."""

from __future__ import annotations

import atexit
import os
import pty
import select
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TextIO

import pytest

from localdiff.chat import typeahead
from localdiff.chat.typeahead import TypeAhead
from localdiff.doctor.terminal import terminal_capabilities
from localdiff.ui.keyboard_modes import KeyboardEcho
from localdiff.ui.output import Output, Stream
from localdiff.ui.progress_terminal import ProgressTerminal
from localdiff.ui.replay_screen import ALTERNATE_OFF, ALTERNATE_ON, ReplayScreen


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """A terminal that this process takes for its own."""
    master, slave = pty.openpty()
    monkeypatch.setattr(os, "tcgetpgrp", lambda _descriptor: os.getpgrp())
    with open(slave, "w", encoding="utf-8") as stream:
        yield stream
    os.close(master)


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What the process would call at its end."""
    registered: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(atexit, "unregister", lambda call: registered.remove(call) if call in registered else None)
    return registered


def interrupted_after(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, times: int = 1) -> None:
    """Has Ctrl-C pressed at the end of each of the next `times` calls of a function."""
    _interrupted(monkeypatch, owner, name, times, works=True)


def interrupted_before(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, times: int = 1) -> None:
    """Has Ctrl-C pressed before the function does anything, in each of its next `times` calls."""
    _interrupted(monkeypatch, owner, name, times, works=False)


def _interrupted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, times: int, *, works: bool) -> None:
    real, left = getattr(owner, name), [None] * times

    def function(*arguments: Any, **options: Any) -> Any:
        is_interrupted = bool(left)
        if is_interrupted:
            left.pop()
        result = real(*arguments, **options) if works or not is_interrupted else None
        if is_interrupted:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, function)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT)]


@pytest.mark.parametrize(
    ("owner", "name"), [(tty, "setcbreak"), (ReplayScreen, "_write")], ids=["after the modes", "after the screen"]
)
def test_a_replay_that_is_stopped_as_it_begins(
    terminal: TextIO, at_exit: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    before, handled = termios.tcgetattr(terminal), handlers()
    interrupted_after(monkeypatch, owner, name)
    with pytest.raises(KeyboardInterrupt), ReplayScreen(terminal, terminal):
        pytest.fail("it did not begin")
    assert (termios.tcgetattr(terminal), handlers(), at_exit) == (before, handled, [])


def test_a_replay_that_is_stopped_as_it_ends_is_restored_at_exit(
    terminal: TextIO, at_exit: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = termios.tcgetattr(terminal)
    sent: list[str] = []
    monkeypatch.setattr(ReplayScreen, "_write", lambda _screen, text: sent.append(text))
    with pytest.raises(KeyboardInterrupt), ReplayScreen(terminal, terminal):
        assert termios.tcgetattr(terminal) != before
        interrupted_before(monkeypatch, termios, "tcsetattr")
    assert termios.tcgetattr(terminal) != before
    for call in at_exit:
        call()
    assert termios.tcgetattr(terminal) == before
    assert (sent[0].startswith(ALTERNATE_ON), ALTERNATE_OFF in sent[-1], len(sent)) == (True, True, 2)


def test_a_replay_that_is_continued_as_it_ends_takes_the_terminal_no_more(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `timeout`, which sends SIGCONT right after SIGTERM."""
    before = termios.tcgetattr(terminal)
    sent: list[str] = []
    monkeypatch.setattr(ReplayScreen, "_write", lambda _screen, text: sent.append(text))
    give_back = ReplayScreen._give_back

    def continued(screen: ReplayScreen) -> None:
        give_back(screen)
        signal.raise_signal(signal.SIGCONT)

    with ReplayScreen(terminal, terminal):
        monkeypatch.setattr(ReplayScreen, "_give_back", continued)
    assert termios.tcgetattr(terminal) == before
    assert (sent[0].startswith(ALTERNATE_ON), ALTERNATE_OFF in sent[-1], len(sent)) == (True, True, 2)


def test_bars_that_are_stopped_as_they_begin(
    terminal: TextIO, at_exit: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, handled = termios.tcgetattr(terminal), handlers()
    interrupted_after(monkeypatch, termios, "tcsetattr")
    with pytest.raises(KeyboardInterrupt), ProgressTerminal(Stream(file=terminal, moving=True)):
        pytest.fail("it did not begin")
    assert (termios.tcgetattr(terminal), handlers(), at_exit) == (before, handled, [])


def test_bars_that_are_stopped_as_they_end_are_restored_at_exit(
    terminal: TextIO, at_exit: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = termios.tcgetattr(terminal)
    with pytest.raises(KeyboardInterrupt), ProgressTerminal(Stream(file=terminal, moving=True)):
        assert termios.tcgetattr(terminal) != before
        interrupted_before(monkeypatch, termios, "tcsetattr")
    for call in at_exit:
        call()
    assert termios.tcgetattr(terminal) == before


def test_an_echo_that_was_not_restored_is_by_the_next_call(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    before, echo = termios.tcgetattr(terminal), KeyboardEcho(terminal)
    echo.take_over()
    interrupted_before(monkeypatch, termios, "tcsetattr")
    with pytest.raises(KeyboardInterrupt):
        echo.restore()
    echo.restore()
    assert termios.tcgetattr(terminal) == before


@pytest.mark.parametrize("is_stopped", [True, False])
def test_an_echo_that_is_turned_off_anew_while_it_is_restored_comes_back(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """As by Ctrl-Z, whose handler restores the echo, stops the process, and turns the echo off when it goes on.

    SIGCONT alone turns the echo off, too.
    """
    before, echo = termios.tcgetattr(terminal), KeyboardEcho(terminal)
    echo.take_over()
    real = termios.tcsetattr

    def stopped(*arguments: Any) -> None:
        real(*arguments)
        monkeypatch.setattr(termios, "tcsetattr", real)
        if is_stopped:
            echo.restore()
        echo.take_over()

    monkeypatch.setattr(termios, "tcsetattr", stopped)
    echo.restore()
    assert termios.tcgetattr(terminal) == before


def test_the_terminal_of_a_notebook_is_not_asked_and_counts_as_none(terminal: TextIO) -> None:
    assert terminal_capabilities(terminal, None, {"TERM": "xterm-color"}).terminal
    env = {"TERM": "xterm-color", "JPY_PARENT_PID": "1"}
    assert not terminal_capabilities(terminal, terminal, env).terminal


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTSTP, signal.SIGINT])
def test_a_terminal_that_is_asked_is_given_back_before_the_process_loses_it(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before, handled, given_back = termios.tcgetattr(terminal), handlers(), []

    def pressed(*_: object) -> tuple[list[int], list[int], list[int]]:
        assert termios.tcgetattr(terminal) != before
        signal.raise_signal(number)
        return [], [], []

    monkeypatch.setattr(select, "select", pressed)
    monkeypatch.setattr(os, "kill", lambda _process, _number: given_back.append(termios.tcgetattr(terminal)))
    with pytest.raises(KeyboardInterrupt) if number == signal.SIGINT else nullcontext():
        assert terminal_capabilities(terminal, terminal, {"TERM": "xterm"}).synchronized is None
    assert given_back == ([] if number == signal.SIGINT else [before])
    assert termios.tcgetattr(terminal) == before
    assert handlers() == handled


def test_keys_come_back_where_ctrl_c_follows_their_change(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    before, stream = termios.tcgetattr(terminal), Stream(file=terminal, moving=True)
    typed = TypeAhead(terminal.buffer, Output(stdout=stream, stderr=stream))
    interrupted_after(monkeypatch, termios, "tcsetattr")
    with pytest.raises(KeyboardInterrupt), typed.typing_ahead():
        pytest.fail("it did not begin")
    assert termios.tcgetattr(terminal) == before


def test_keys_come_back_where_ctrl_c_ends_the_wait_for_a_terminal_that_is_held(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stream = termios.tcgetattr(terminal), Stream(file=terminal, moving=True)
    typed = TypeAhead(terminal.buffer, Output(stdout=stream, stderr=stream))
    interrupted_before(monkeypatch, typeahead, "takes_output")
    with pytest.raises(KeyboardInterrupt), typed.typing_ahead():
        assert termios.tcgetattr(terminal) != before
    assert termios.tcgetattr(terminal) == before
