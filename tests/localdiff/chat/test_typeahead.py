"""What a terminal does with keys while nobody reads them: its habits change, and come back."""

from __future__ import annotations

import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from localdiff.chat import terminal_habits
from localdiff.chat.typeahead import TypeAhead, typed_ahead, typed_early, typing_ahead, typing_as_usual
from localdiff.ui.output import Stream
from localdiff.ui.region import PASTES_OFF, PASTES_ON

INPUT, LOCAL, KEYS = 0, 3, 6  # places of their flags in what `tcgetattr` gives


@pytest.fixture
def terminal() -> Iterator[tuple[int, BinaryIO]]:
    """What types, and what is typed on."""
    master, slave = pty.openpty()
    with open(slave, "rb", buffering=0) as keyboard:
        yield master, keyboard  # type: ignore[misc]
    os.close(master)


def test_only_the_echo_the_meaning_of_enter_and_keys_that_edit_or_drop_change(terminal: tuple[int, BinaryIO]) -> None:
    _, keyboard = terminal
    before, screen = termios.tcgetattr(keyboard), io.StringIO()
    with typing_ahead(keyboard, Stream(file=screen, moving=True)):
        assert screen.getvalue() == PASTES_ON
        during = termios.tcgetattr(keyboard)
        with typing_as_usual(keyboard, Stream(file=screen, moving=True)):
            assert termios.tcgetattr(keyboard) == before
            assert screen.getvalue() == PASTES_ON + PASTES_OFF
        assert termios.tcgetattr(keyboard) == during
    assert termios.tcgetattr(keyboard) == before
    assert screen.getvalue() == (PASTES_ON + PASTES_OFF) * 2
    assert before[INPUT] ^ during[INPUT] == termios.ICRNL
    assert before[LOCAL] ^ during[LOCAL] == termios.ECHO | termios.NOFLSH
    changed = {at for at, (one, other) in enumerate(zip(before[KEYS], during[KEYS], strict=True)) if one != other}
    assert changed == {termios.VEOF, termios.VERASE, termios.VKILL, termios.VWERASE, termios.VREPRINT, termios.VLNEXT}
    rest = [at for at in range(len(before)) if at not in (INPUT, LOCAL, KEYS)]
    assert [before[at] for at in rest] == [during[at] for at in rest]


@pytest.mark.parametrize(
    "typed",
    [
        "first message\rsecond\x15third",
        "first\r\x1b[A\x7f\x7f",
        "Spell \x04the word moon.\r",
        "a\x16b\x17c\x12d",
        "\x04",
    ],
    ids=["ctrl-u", "up, backspace", "ctrl-d", "ctrl-v, ctrl-w, ctrl-r", "ctrl-d alone"],
)
def test_keys_that_edit_are_kept_for_the_line(terminal: tuple[int, BinaryIO], typed: str) -> None:
    master, keyboard = terminal
    with typing_ahead(keyboard, Stream(file=io.StringIO())):
        os.write(master, typed.encode())
        assert typed_ahead(keyboard) == typed


def test_a_key_of_the_user_s_own_edits_again_for_another_program(terminal: tuple[int, BinaryIO]) -> None:
    """Also where it begins twice, as after a shell has had the terminal."""
    _, keyboard = terminal
    attributes = termios.tcgetattr(keyboard)
    attributes[KEYS][termios.VERASE] = b"\x08"
    termios.tcsetattr(keyboard, termios.TCSANOW, attributes)
    nowhere = Stream(file=io.StringIO())
    with typing_ahead(keyboard, nowhere), typing_ahead(keyboard, nowhere):
        with typing_as_usual(keyboard, nowhere):
            assert termios.tcgetattr(keyboard)[KEYS][termios.VERASE] == b"\x08"
        assert termios.tcgetattr(keyboard)[KEYS][termios.VERASE] != b"\x08"
    assert termios.tcgetattr(keyboard) == attributes


def test_a_shell_gets_the_terminal_as_it_was_and_what_was_typed_is_kept(terminal: tuple[int, BinaryIO]) -> None:
    """Also where another program has it already, such as an editor."""
    master, keyboard = terminal
    before, nowhere = termios.tcgetattr(keyboard), Stream(file=io.StringIO())
    typed = TypeAhead(keyboard)
    with typing_ahead(keyboard, nowhere):
        during = termios.tcgetattr(keyboard)
        os.write(master, b"one\r")
        typed.give_back()
        assert termios.tcgetattr(keyboard) == before
        for _ in range(2):  # a process may be continued that was not stopped
            typed.take_over()
            assert termios.tcgetattr(keyboard) == during
        with typing_as_usual(keyboard, nowhere):
            typed.give_back()
            typed.take_over()
            assert termios.tcgetattr(keyboard) == before
        os.write(master, b"two")
        assert typed.take() == "one\rtwo"


@pytest.mark.parametrize("by", ["bg and fg", "kill -STOP"])
def test_keys_are_as_typed_again_whichever_way_the_terminal_comes_back(
    terminal: tuple[int, BinaryIO], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    _, keyboard = terminal
    usual, typed = termios.tcgetattr(keyboard), TypeAhead(keyboard)
    with typing_ahead(keyboard, Stream(file=io.StringIO())):
        during = termios.tcgetattr(keyboard)
        if by == "bg and fg":
            typed.give_back()
            with monkeypatch.context() as patched:
                patched.setattr(terminal_habits, "is_in_background", lambda _keyboard: True)
                typed.take_over()
        else:
            termios.tcsetattr(keyboard, termios.TCSANOW, usual)  # by the shell
        assert termios.tcgetattr(keyboard) == usual
        typed.take_over()
        assert termios.tcgetattr(keyboard) == during
    assert termios.tcgetattr(keyboard) == usual


def test_what_was_typed_early_is_taken_at_once_and_enter_is_enter(terminal: tuple[int, BinaryIO]) -> None:
    master, keyboard = terminal
    before = termios.tcgetattr(keyboard)
    assert typed_early(keyboard) == ""
    os.write(master, "é one\rtwo".encode())
    assert typed_early(keyboard) == "é one\rtwo"
    assert typed_early(keyboard) == ""
    assert termios.tcgetattr(keyboard) == before


def test_a_pipe_is_left_alone() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as keyboard, open(writing, "wb", buffering=0) as other:
        other.write(b"one\n")
        with typing_ahead(keyboard, Stream(file=io.StringIO())):
            assert typed_early(keyboard) == ""
        assert keyboard.readline() == b"one\n"
    screen = io.StringIO()
    with typing_ahead(None, Stream(file=screen, moving=True)):
        assert typed_early(None) == screen.getvalue() == ""


def test_a_terminal_that_another_job_has_is_left_alone(
    terminal: tuple[int, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change would stop a process that was told to end while it was stopped."""
    _, keyboard = terminal
    before = termios.tcgetattr(keyboard)
    monkeypatch.setattr("localdiff.chat.terminal_habits.is_in_background", lambda _: True)
    with typing_ahead(keyboard, Stream(file=io.StringIO())):
        assert termios.tcgetattr(keyboard) == before
