"""What a terminal does with keys while nobody reads them: three of its habits change, and come back."""

from __future__ import annotations

import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from localdiff.chat.typeahead import typed_early, typing_ahead, typing_as_usual
from localdiff.ui.output import Stream
from localdiff.ui.region import PASTES_OFF, PASTES_ON

INPUT, LOCAL = 0, 3  # places of their flags in what `tcgetattr` gives


@pytest.fixture
def terminal() -> Iterator[tuple[int, BinaryIO]]:
    """What types, and what is typed on."""
    master, slave = pty.openpty()
    with open(slave, "rb", buffering=0) as keyboard:
        yield master, keyboard  # type: ignore[misc]
    os.close(master)


def test_only_the_echo_and_the_meaning_of_enter_change(terminal: tuple[int, BinaryIO]) -> None:
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
    assert before[LOCAL] ^ during[LOCAL] == termios.ECHO
    assert [flags for at, flags in enumerate(before) if at not in (INPUT, LOCAL)] == [
        flags for at, flags in enumerate(during) if at not in (INPUT, LOCAL)
    ]


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
