"""What a terminal does with keys while nobody reads them: its modes change, and are restored."""

from __future__ import annotations

import io
import os
import pty
import termios
from collections.abc import Iterator
from contextlib import nullcontext
from typing import BinaryIO

import pytest

from localdiff.chat.typeahead import TypeAhead
from localdiff.ui import keyboard_modes
from localdiff.ui.output import Output, Stream
from localdiff.ui.region import PASTES_OFF, PASTES_ON

INPUT, LOCAL, KEYS = 0, 3, 6  # places of their flags in what `tcgetattr` gives


@pytest.fixture
def terminal() -> Iterator[tuple[int, BinaryIO]]:
    """The end that types, and the keyboard that a program reads."""
    master, slave = pty.openpty()
    with open(slave, "rb", buffering=0) as keyboard:
        yield master, keyboard  # type: ignore[misc]
    os.close(master)


def typed_on(keyboard: BinaryIO, screen: io.StringIO | None = None) -> TypeAhead:
    stream = Stream(file=screen or io.StringIO(), terminal=True, moving=True)
    return TypeAhead(keyboard, Output(stdout=stream, stderr=stream))


def test_only_the_echo_the_meaning_of_enter_and_keys_that_edit_or_drop_change(terminal: tuple[int, BinaryIO]) -> None:
    _, keyboard = terminal
    before, screen = termios.tcgetattr(keyboard), io.StringIO()
    typed = typed_on(keyboard, screen)
    with typed.typing_ahead():
        assert screen.getvalue() == PASTES_ON
        during = termios.tcgetattr(keyboard)
        with typed.typing_as_usual():
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
    ahead = typed_on(keyboard)
    with ahead.typing_ahead():
        os.write(master, typed.encode())
        assert ahead.take() == typed


def test_a_key_of_the_user_s_own_edits_again_for_another_program(terminal: tuple[int, BinaryIO]) -> None:
    _, keyboard = terminal
    attributes = termios.tcgetattr(keyboard)
    attributes[KEYS][termios.VERASE] = b"\x08"
    termios.tcsetattr(keyboard, termios.TCSANOW, attributes)
    typed = typed_on(keyboard)
    with typed.typing_ahead():
        with typed.typing_as_usual():
            assert termios.tcgetattr(keyboard)[KEYS][termios.VERASE] == b"\x08"
        assert termios.tcgetattr(keyboard)[KEYS][termios.VERASE] != b"\x08"
    assert termios.tcgetattr(keyboard) == attributes


def test_a_shell_gets_the_terminal_as_it_was_and_what_was_typed_is_kept(terminal: tuple[int, BinaryIO]) -> None:
    """Even while another program, such as an editor, already has the terminal."""
    master, keyboard = terminal
    before, typed = termios.tcgetattr(keyboard), typed_on(keyboard)
    with typed.typing_ahead():
        during = termios.tcgetattr(keyboard)
        os.write(master, b"one\r")
        typed.give_back()
        assert termios.tcgetattr(keyboard) == before
        for _ in range(2):  # a process that was not stopped may be continued, too
            typed.take_over()
            assert termios.tcgetattr(keyboard) == during
        with typed.typing_as_usual():
            typed.give_back()
            typed.take_over()
            assert termios.tcgetattr(keyboard) == before
        os.write(master, b"two")
        assert typed.take() == "one\rtwo"


@pytest.mark.parametrize("where", ["during a reply", "at a question"])
def test_what_the_user_changes_while_the_chat_is_stopped_outlives_it(
    terminal: tuple[int, BinaryIO], where: str
) -> None:
    _, keyboard = terminal
    typed = typed_on(keyboard)
    with typed.typing_ahead():
        during = termios.tcgetattr(keyboard)
        with typed.typing_as_usual() if where == "at a question" else nullcontext():
            typed.give_back()
            set_by_user = termios.tcgetattr(keyboard)
            set_by_user[INPUT] ^= termios.IXANY
            set_by_user[KEYS][termios.VERASE] = b"\x08"
            termios.tcsetattr(keyboard, termios.TCSANOW, set_by_user)
            typed.take_over()
        during[INPUT] ^= termios.IXANY
        assert termios.tcgetattr(keyboard) == during
    assert termios.tcgetattr(keyboard) == set_by_user


def test_what_another_program_leaves_behind_does_not_outlive_the_chat(terminal: tuple[int, BinaryIO]) -> None:
    """An editor that was killed, for example, leaves a terminal without echo."""
    _, keyboard = terminal
    before, typed = termios.tcgetattr(keyboard), typed_on(keyboard)
    with typed.typing_ahead():
        during = termios.tcgetattr(keyboard)
        with typed.typing_as_usual():
            left = termios.tcgetattr(keyboard)
            left[LOCAL] &= ~termios.ECHO
            termios.tcsetattr(keyboard, termios.TCSANOW, left)
        assert termios.tcgetattr(keyboard) == during
    assert termios.tcgetattr(keyboard) == before


@pytest.mark.parametrize("by", ["bg and fg", "kill -STOP"])
def test_keys_are_as_typed_again_whichever_way_the_terminal_comes_back(
    terminal: tuple[int, BinaryIO], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    _, keyboard = terminal
    usual, typed = termios.tcgetattr(keyboard), typed_on(keyboard)
    with typed.typing_ahead():
        during = termios.tcgetattr(keyboard)
        if by == "bg and fg":
            typed.give_back()
            with monkeypatch.context() as patched:
                patched.setattr(keyboard_modes, "is_in_background", lambda _keyboard: True)
                typed.take_over()
        else:
            termios.tcsetattr(keyboard, termios.TCSANOW, usual)  # by the shell
        assert termios.tcgetattr(keyboard) == usual
        typed.take_over()
        assert termios.tcgetattr(keyboard) == during
    assert termios.tcgetattr(keyboard) == usual


def test_what_was_typed_early_is_taken_at_once_and_enter_is_enter(terminal: tuple[int, BinaryIO]) -> None:
    master, keyboard = terminal
    before, typed = termios.tcgetattr(keyboard), typed_on(keyboard)
    os.write(master, "é one\rtwo".encode())
    with typed.typing_ahead():
        assert typed.take() == "é one\rtwo"
        assert typed.take() == ""
    assert termios.tcgetattr(keyboard) == before


def test_a_pipe_is_left_alone() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as keyboard, open(writing, "wb", buffering=0) as other:
        other.write(b"one\n")
        typed = typed_on(keyboard)
        with typed.typing_ahead():
            assert typed.take() == ""
        assert keyboard.readline() == b"one\n"


def test_a_terminal_that_another_job_has_is_left_alone(
    terminal: tuple[int, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing its modes would stop a process again that was told to end while it was stopped."""
    _, keyboard = terminal
    before = termios.tcgetattr(keyboard)
    monkeypatch.setattr(keyboard_modes, "is_in_background", lambda _keyboard: True)
    with typed_on(keyboard).typing_ahead():
        assert termios.tcgetattr(keyboard) == before
