"""Lines from a pipe: unchanged, joined within triple quotes, and refused if they are not text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.chat import line_reader as typed
from localdiff.chat import slash
from localdiff.chat.interrupts import Interrupts
from localdiff.chat.line_reader import LineReader
from localdiff.errors import UsageError
from localdiff.utf8 import MAX_BYTES
from tests.screens.processes import Cli


def read_all(data: bytes) -> list[str]:
    reader, found = LineReader(io.BytesIO(data), Interrupts()), list[str]()
    while True:
        try:
            found.append(reader.read())
        except EOFError:
            return found


def test_lines_lose_their_ends_and_nothing_else() -> None:
    assert read_all("one\r\n\n  é two \nlast".encode()) == ["one", "", "  é two ", "last"]


def test_quotes_go_on_until_they_are_closed() -> None:
    assert read_all(b'"""a\nb"""\nc\n"""d\ne"""') == ['"""a\nb"""', "c", '"""d\ne"""']


@pytest.mark.parametrize("last", [b'"""', b'"""a', b'"""a\n/clear\nb\n'])
def test_a_message_whose_quotes_nothing_closes_is_refused(last: bytes) -> None:
    reader = LineReader(io.BytesIO(b"first\n" + last), Interrupts())
    assert reader.read() == "first"
    with pytest.raises(UsageError, match=r'the input ends before the `"""` that closes its last message') as error:
        reader.read()
    assert error.value.hint == "none of it was sent"
    with pytest.raises(EOFError):
        reader.read()


def test_a_script_is_told_that_its_last_message_was_cut_short(cli: Cli) -> None:
    result = cli("chat", "-m", "demo", "--no-history", stdin=b'"""Spell the word\nplanet.\n')
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith('error: the input ends before the `"""`')


def test_what_is_not_utf_8_is_refused_and_the_next_line_is_not() -> None:
    reader = LineReader(io.BytesIO(b"caf\xe9\nnext\n"), Interrupts())
    with pytest.raises(UsageError, match="a line is not text: byte 3 is not UTF-8"):
        reader.read()
    assert reader.read() == "next"


@pytest.mark.parametrize("bad", [b"\xff", b"a\0b"])
def test_no_line_of_a_message_that_is_refused_is_a_command(bad: bytes) -> None:
    reader = LineReader(io.BytesIO(b'"""one\n' + bad + b'\n/clear\nend"""\nnext\n'), Interrupts())
    with pytest.raises(UsageError, match="a line is not text: "):
        reader.read()
    assert reader.read() == "next"


def test_a_null_byte_is_no_text_and_a_byte_order_mark_no_part_of_it() -> None:
    reader = LineReader(io.BytesIO("\ufeff/undo\na\0b\nnext\ufeff\n".encode()), Interrupts())
    assert reader.read() == "/undo"
    with pytest.raises(UsageError, match="a line is not text: it contains a null byte"):
        reader.read()
    assert reader.read() == "next\ufeff"


def test_nothing_is_read_where_there_is_no_input() -> None:
    with pytest.raises(EOFError):
        LineReader(io.BytesIO(), Interrupts()).read()


def test_a_chat_says_so_and_goes_on(cli: Cli) -> None:
    result = cli("chat", "-m", "demo", "--no-history", stdin=b"caf\xe9\nSpell the word planet.\n/copy\n")
    assert result.code == 2
    assert "error: a line is not text" in result.stderr
    assert "p-l-a-n-e-t" in result.stdout
    assert f"\nCopied to {paths.state_dir() / 'copy.txt'}\n" in result.stderr
    assert "\x1b" not in result.stderr, "there is no terminal whose clipboard it could be"


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (b"Spell the word planet.\n/sessions\n", 0),
        (b"/svae\n/sessions\n", 2),
        (b"/undo\nSpell the word planet.\n", 2),
        (b"/svae\n/exit\n", 2),
    ],
)
def test_a_chat_from_a_pipe_ends_with_the_code_of_its_last_error(cli: Cli, lines: bytes, code: int) -> None:
    assert cli("chat", "-m", "demo", "--no-history", stdin=lines).code == code


def test_a_session_that_cannot_be_saved_is_no_success(cli: Cli, home: Path) -> None:
    (home / "sessions").write_text("a file where a folder belongs")
    result = cli("chat", "-m", "demo", stdin=b"Spell the word planet.\n")
    assert "p-l-a-n-e-t" in result.stdout
    assert result.code == 4, result.stderr


@pytest.mark.parametrize("begin", [b"", b'"""'])
def test_a_message_of_more_than_any_context_holds_is_refused_whole(begin: bytes) -> None:
    long = begin + b"a b " * (MAX_BYTES // 4 + 1)
    for text in (long + begin, long + b"\n" + begin if begin else long):
        reader = LineReader(io.BytesIO(text + b"\nnext\n"), Interrupts())
        with pytest.raises(UsageError, match="a message has more than 16 MB, more than any context holds"):
            reader.read()
        assert reader.read() == "next"


def test_the_lines_after_one_that_fills_a_message_are_a_part_of_it() -> None:
    text = b'"""\n' + b"a" * MAX_BYTES + b"\n/clear\n" + b"b" * (2 * MAX_BYTES) + b'c"""  \n/clear\n'
    reader = LineReader(io.BytesIO(text), Interrupts())
    with pytest.raises(UsageError, match="more than any context holds"):
        reader.read()
    assert reader.read() == "/clear"


def test_a_message_of_just_as_much_as_is_taken_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"""one\ntwo"""'
    monkeypatch.setattr(typed, "MAX_BYTES", len(text.replace("\n", "")))
    assert read_all(text.encode()) == [text]
    with pytest.raises(UsageError, match="a message has more than"):
        read_all(text.replace("two", "three").encode())


def test_a_message_of_very_many_lines_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counting(text: str) -> bool:
        nonlocal looked
        looked += len(text)
        return slash.is_open(text)

    monkeypatch.setattr(typed, "is_open", counting)
    text = '"""' + "a line\n" * 20_000 + '"""'
    assert read_all(text.encode()) == [text]
    assert looked < 100
