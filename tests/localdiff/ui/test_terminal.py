"""The terminal itself: its size, what may be drawn on it, and that it is given back."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import resource
import select
import signal
import struct
import termios
from collections.abc import Callable, Iterator
from typing import TextIO

import pytest

from localdiff.chat.typeahead import TypeAhead
from localdiff.ui.keyboard_modes import KeyboardEcho
from localdiff.ui.output import Output, Stream
from localdiff.ui.region import LEAVE, PASTES_ON
from localdiff.ui.terminal import FALLBACK, is_same_terminal, moves_cursor, terminal_size
from localdiff.ui.terminal_guard import TerminalGuard
from localdiff.view.layout import Size
from tests.screens.terminal import FakeTerminal


@pytest.fixture(autouse=True)
def _signals_as_in_a_new_process() -> Iterator[None]:
    """What runs the tests may ignore some signals, as a shell without job control ignores SIGTSTP."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as stream:
        yield master, stream
    os.close(master)


def echoes(descriptor: int) -> bool:
    return bool(termios.tcgetattr(descriptor)[3] & termios.ECHO)


def test_the_size_is_asked_of_the_terminal_and_not_of_the_environment(
    terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "999")
    master, stream = terminal
    assert terminal_size(stream) == FALLBACK, "a new pseudo-terminal has no size"
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    assert terminal_size(stream) == Size(101, 33)
    assert terminal_size(io.StringIO()) == FALLBACK


@pytest.mark.parametrize(
    ("env", "moves"),
    [
        ({"TERM": "xterm"}, True),
        ({}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "1"}, False),  # a command in a notebook
    ],
)
def test_where_a_cursor_moves(env: dict[str, str], moves: bool) -> None:
    assert moves_cursor(FakeTerminal(), env) == moves  # type: ignore[arg-type]
    assert not moves_cursor(io.StringIO(), env)


def test_the_same_terminal(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as other, open(os.dup(stream.fileno()), "w", encoding="utf-8") as twin:
        assert is_same_terminal(stream, twin)
        assert not is_same_terminal(stream, other)
        assert not is_same_terminal(stream, io.StringIO())
    os.close(master)


def leads_its_session(stream: TextIO, holds: Callable[[], bool]) -> bool:
    """What `holds` answers in a process that owns the terminal; no other process may change its modes."""
    pid = os.fork()
    if pid == 0:
        held = False
        try:
            os.setsid()
            fcntl.ioctl(stream.fileno(), termios.TIOCSCTTY, 0)
            held = holds()
        finally:
            os._exit(0 if held else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_keys_are_not_echoed_meanwhile_and_are_afterwards(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal

    def holds() -> bool:
        guard = TerminalGuard(stream=stream)
        seen = [echoes(stream.fileno())]
        guard.start()
        seen.append(echoes(stream.fileno()))
        guard.stop()
        seen.append(echoes(stream.fileno()))
        return seen == [True, False, True]

    assert leads_its_session(stream, holds)


def test_ctrl_z_that_stops_nothing_leaves_the_terminal_taken(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal

    def holds() -> bool:
        resumed: list[bool] = []
        guard = TerminalGuard(stream=stream, on_resumed=lambda: resumed.append(echoes(stream.fileno())))
        guard.start()
        for _ in range(2):  # the system stops no process that nobody could continue
            signal.raise_signal(signal.SIGTSTP)
        guard.stop()
        return resumed == [False, False] and echoes(stream.fileno())

    assert leads_its_session(stream, holds)


@pytest.mark.parametrize("marks", [False, True])
def test_pastes_are_marked_again_once_it_goes_on_where_they_were(terminal: tuple[int, TextIO], marks: bool) -> None:
    master, stream = terminal
    guard = TerminalGuard(stream=stream, keys=KeyboardEcho(stream) if marks else None)
    guard.start()
    signal.raise_signal(signal.SIGCONT)
    guard.stop()
    print("end", end="", file=stream, flush=True)
    found = ""
    while not found.endswith("end"):
        found += os.read(master, 100).decode()
    assert found == PASTES_ON * marks + "end"


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_what_was_typed_is_dropped_after_ctrl_c_unless_somebody_keeps_it(
    terminal: tuple[int, TextIO], interrupted: bool, kept: bool
) -> None:
    master, stream = terminal

    def is_left() -> bool:
        unheard = Stream(file=io.StringIO())
        keeper = TypeAhead(io.BytesIO(), Output(stdout=unheard, stderr=unheard))
        guard = TerminalGuard(stream=stream, keys=keeper if kept else None)
        guard.start()
        os.write(master, b"touch x\n")
        select.select([stream], [], [], 5)
        guard.stop(interrupted=interrupted)
        return bool(select.select([stream], [], [], 0)[0]) is (kept or not interrupted)

    assert leads_its_session(stream, is_left)


def test_a_terminal_of_another_process_keeps_its_echo(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal
    guard = TerminalGuard(stream=stream)
    guard.start()
    assert echoes(stream.fileno())
    guard.stop()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_signals_that_end_the_process_still_do_after_the_terminal_is_restored(
    terminal: tuple[int, TextIO], number: signal.Signals
) -> None:
    master, stream = terminal
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        TerminalGuard(stream=stream, leave=lambda: LEAVE).start()
        signal.raise_signal(number)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number
    assert os.read(master, 100) == LEAVE.encode()


def test_somebody_else_s_handler_is_left_alone(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal

    def theirs(number: int, frame: object) -> None:
        raise AssertionError(number, frame)

    for number in (signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, theirs)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    guard = TerminalGuard(stream=stream)
    guard.start()
    assert signal.getsignal(signal.SIGQUIT) is signal.getsignal(signal.SIGTSTP) is theirs
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    guard.stop()
    assert signal.getsignal(signal.SIGQUIT) is signal.getsignal(signal.SIGTSTP) is theirs
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_coming_back_from_the_background_is_noticed(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal
    resumed: list[bool] = []
    guard = TerminalGuard(stream=stream, on_resumed=lambda: resumed.append(True))
    guard.start()
    signal.raise_signal(signal.SIGCONT)
    guard.stop()
    assert resumed == [True]
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


def test_restoring_writes_the_sequence_and_forgives_a_terminal_that_is_gone(terminal: tuple[int, TextIO]) -> None:
    master, stream = terminal
    guard = TerminalGuard(stream=stream, leave=lambda: LEAVE)
    guard.restore()
    assert os.read(master, 100) == LEAVE.encode()
    closed = open(os.dup(stream.fileno()), "w")  # noqa: SIM115
    closed.close()
    TerminalGuard(stream=closed, leave=lambda: LEAVE).restore()
    TerminalGuard(stream=io.StringIO()).restore()
