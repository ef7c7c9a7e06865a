"""What each stream is and may show, decided once."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from localdiff.ui.output import Output, Stream, decide
from tests.screens.processes import CapturedStream


def looked_at(env: dict[str, str], *, terminals: str = "", **flags: bool) -> Output:
    return decide(
        stdout=CapturedStream(terminal="stdout" in terminals),
        stderr=CapturedStream(terminal="stderr" in terminals),
        env=env,
        **flags,
    )


@pytest.mark.parametrize(
    ("terminals", "flags", "logs", "notes"),
    [
        ("stdout stderr", {}, False, True),
        ("stderr", {}, False, True),
        ("stdout", {}, True, True),
        ("", {}, False, False),
        ("", {"verbose": True}, True, True),
        ("stdout stderr", {"verbose": True}, True, True),
        ("stdout stderr", {"quiet": True}, False, False),
        ("stdout", {"quiet": True}, False, False),
    ],
)
def test_who_is_told_what(terminals: str, flags: dict[str, bool], logs: bool, notes: bool) -> None:
    output = looked_at({}, terminals=terminals, **flags)
    assert (output.logs, output.notes) == (logs, notes)


@pytest.mark.parametrize(
    ("term", "terminals", "moves"),
    [("xterm", "stderr", True), ("dumb", "stderr", False), ("unknown", "stderr", False), ("xterm", "", False)],
)
def test_nothing_moves_on_pipes_and_dumb_terminals_and_nothing_has_colour(
    term: str, terminals: str, moves: bool
) -> None:
    stderr = looked_at({"TERM": term}, terminals=terminals).stderr
    assert (stderr.moving, stderr.color) == (moves, moves)


@pytest.mark.parametrize(
    ("columns", "width"), [("120", 120), ("0", 80), ("wide", 80), ("", 80), ("²", 80), ("9" * 5000, 80)]
)
def test_width(columns: str, width: int) -> None:
    assert looked_at({"COLUMNS": columns}, terminals="stderr").stderr.width == width


def test_a_pipe_gets_exact_utf_8_whatever_the_locale() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", newline=None)
    output = decide(stdout=pipe, stderr=CapturedStream(), env={})
    output.stdout.write("✓\n")
    assert pipe.buffer.getvalue() == "✓\n".encode()  # type: ignore[attr-defined]


def test_a_terminal_gets_what_its_encoding_has() -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    screen.buffer.isatty = lambda: True  # type: ignore[method-assign]
    decide(stdout=screen, stderr=CapturedStream(), env={}).stdout.write("é✓")
    assert screen.buffer.getvalue() == b"\xe9\\u2713"  # type: ignore[attr-defined]


def test_a_path_is_written_in_its_very_bytes() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    path = Path(os.fsdecode(b"/a\xff\x1b[31m"))
    decide(stdout=pipe, stderr=CapturedStream(), env={}).stdout.write_path(path)
    assert pipe.buffer.getvalue() == b"/a\xff\x1b[31m\n"  # type: ignore[attr-defined]
    screen = CapturedStream(terminal=True)
    decide(stdout=screen, stderr=CapturedStream(), env={}).stdout.write_path(path)
    assert screen.text() == "/a\\xff\\x1b[31m\n"


def test_json_can_name_every_file_and_reads_back_as_it_was() -> None:
    names = {"name": os.fsdecode("é\x1b[31m".encode() + b"\xff")}
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    screen = CapturedStream(terminal=True)
    for stdout in (pipe, screen):
        decide(stdout=stdout, stderr=CapturedStream(), env={}).stdout.write_json(names)
    written = pipe.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert written == '{\n  "name": "é\\u001b[31m\\udcff"\n}\n'
    assert screen.text().isascii()
    assert json.loads(written) == json.loads(screen.text()) == names


def test_an_encoding_that_was_asked_for_is_kept() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    decide(stdout=pipe, stderr=CapturedStream(), env={"PYTHONIOENCODING": "latin-1"}).stdout.write("é✓")
    assert pipe.buffer.getvalue() == b"\xe9\\u2713"  # type: ignore[attr-defined]


def test_json_is_ascii_in_an_encoding_that_lacks_characters() -> None:
    for encoding, is_escaped in (("ascii", True), ("latin-1", True), ("utf-8", False), ("utf-16", False)):
        pipe = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        stdout = decide(stdout=pipe, stderr=CapturedStream(), env={"PYTHONIOENCODING": encoding}).stdout
        stdout.write_json({"text": "é😀"})
        assert stdout.escapes_json == is_escaped
        written = pipe.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        assert json.loads(written) == {"text": "é😀"}


def test_a_text_that_says_it_is_utf8_is_that() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    decide(stdout=pipe, stderr=CapturedStream(), env={"PYTHONIOENCODING": "ascii"}).stdout.write_utf8("é✓\n")
    assert pipe.buffer.getvalue() == "é✓\n".encode()  # type: ignore[attr-defined]


def test_the_dot_is_what_the_stream_can_encode() -> None:
    assert Stream(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii")).dot() == "-"
    assert Stream(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8")).dot() == "·"
    assert Stream(file=io.StringIO()).dot() == "·"
    assert Stream(file=io.TextIOWrapper(io.BytesIO(), encoding="latin-1")).encodes("·")
    assert not Stream(file=io.TextIOWrapper(io.BytesIO(), encoding="latin-1")).encodes("→")


def test_errors_have_one_form() -> None:
    plain, colored = io.StringIO(), io.StringIO()
    for file, color in ((plain, False), (colored, True)):
        output = Output(stdout=Stream(file=io.StringIO()), stderr=Stream(file=file, color=color))
        output.error("no such thing", "look elsewhere")
    assert plain.getvalue() == "error: no such thing\nhint: look elsewhere\n"
    assert colored.getvalue() == "\x1b[1;31merror:\x1b[0m no such thing\n\x1b[36mhint:\x1b[0m look elsewhere\n"


def test_a_terminal_that_is_narrow_breaks_no_word_and_nothing_that_is_to_be_typed() -> None:
    screen = io.StringIO()
    output = Output(stdout=Stream(file=io.StringIO()), stderr=Stream(file=screen, terminal=True, color=True, width=26))
    output.error("no such thing as `a b c` here", "look elsewhere, with `localdiff models` for example")
    assert screen.getvalue().split("\n") == [
        "\x1b[1;31merror:\x1b[0m no such thing as",
        "`a b c` here",
        "\x1b[36mhint:\x1b[0m look elsewhere, with",
        "`localdiff models` for",
        "example",
        "",
    ]
