"""Lines from a pipe: as they are, whole in triple quotes, and refused where they are no text."""

from __future__ import annotations

import io

import pytest

from localdiff.chat.typed import LineReader
from localdiff.errors import UsageError
from tests.processes import Cli


def read_all(data: bytes) -> list[str]:
    reader, found = LineReader(io.BytesIO(data)), list[str]()
    while True:
        try:
            found.append(reader.read())
        except EOFError:
            return found


def test_lines_lose_their_ends_and_nothing_else() -> None:
    assert read_all("one\r\n\n  é two \nlast".encode()) == ["one", "", "  é two ", "last"]


def test_quotes_go_on_until_they_are_closed_or_the_input_ends() -> None:
    assert read_all(b'"""a\nb"""\nc\n"""d\ne') == ['"""a\nb"""', "c", '"""d\ne']


def test_what_is_not_utf_8_is_refused_and_the_next_line_is_not() -> None:
    reader = LineReader(io.BytesIO(b"caf\xe9\nnext\n"))
    with pytest.raises(UsageError, match="a line is not text: its byte 3 is not UTF-8"):
        reader.read()
    assert reader.read() == "next"


def test_nothing_is_read_where_there_is_no_input() -> None:
    with pytest.raises(EOFError):
        LineReader(None).read()


def test_a_chat_says_so_and_goes_on(cli: Cli) -> None:
    result = cli("chat", "-m", "demo", "--no-history", stdin=b"caf\xe9\nSpell the word planet.\n")
    assert result.code == 0
    assert "error: a line is not text" in result.stderr
    assert "p-l-a-n-e-t" in result.stdout
