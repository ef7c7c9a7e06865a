"""Where a prompt comes from, and what is no prompt."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from localdiff.commands import prompt
from localdiff.commands.prompt import NoPromptError, read_prompt
from localdiff.errors import UsageError
from localdiff.utf8 import MAX_BYTES
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.permissions import as_anyone
from tests.screens.processes import Cli


class Keyboard(io.BytesIO):
    """A terminal on which somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("argument", "stdin", "prompt"),
    [
        ("hello", Keyboard(b"never read"), "hello"),
        ("hello", None, "hello"),
        ("hello", io.BytesIO(), "hello"),
        ("hello", io.BytesIO(b"\n"), "hello"),
        (None, io.BytesIO(b"from a pipe\n"), "from a pipe\n"),
        ("Summarize this:", io.BytesIO(b"a text\n"), "Summarize this:\n\na text\n"),
    ],
)
def test_a_pipe_joins_the_argument_after_a_blank_line(argument: str | None, stdin: io.BytesIO, prompt: str) -> None:
    assert read_prompt(argument, None, stdin) == prompt


@pytest.mark.parametrize(
    ("content", "stdin", "prompt"),
    [
        ("One.\n  Two…\n".encode(), Keyboard(b"never read"), "One.\n  Two…\n"),
        (b"One.\r\nTwo\rand\r\n", None, "One.\nTwo\rand\n"),
        (b"\xef\xbb\xbfhello", io.BytesIO(), "hello"),
        (b"Summarize this:", io.BytesIO(b"a text\n"), "Summarize this:\n\na text\n"),
        (b"Summarize this:\r\n", io.BytesIO(b"a text\n"), "Summarize this:\n\na text\n"),
    ],
)
def test_a_pipe_joins_a_file_after_a_blank_line(
    content: bytes, stdin: io.BytesIO, prompt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "prompt.txt").write_bytes(content)
    assert read_prompt(None, "~/prompt.txt", stdin) == prompt


def test_a_pipe_or_a_file_that_adds_nothing_is_remarked_on(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_bytes(b"a text")
    said: list[str] = []

    def ask(source: Path | int | str) -> str:
        with open(source, "rb") as stdin:
            return read_prompt("hello", None, stdin, remark=said.append)

    reader, writer = os.pipe()
    os.close(writer)
    assert ask(reader) == ask(tmp_path / "empty") == "hello"
    assert said == ["Standard input is empty: the model gets the prompt alone."] * 2
    assert ask(os.devnull) == "hello", "nothing was to be added"
    assert ask(tmp_path / "full") == "hello\n\na text"
    assert len(said) == 2


@pytest.mark.parametrize(("terminals", "options", "said"), [("stderr", [], 1), ("stderr", ["-q"], 0), ("", [], 0)])
def test_the_remark_is_for_a_user(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, terminals: str, options: list[str], said: int
) -> None:
    monkeypatch.setattr(prompt, "_adds_something", lambda _stdin: True)
    cli.engine = ScriptedEngine(blocks=(Block(text="Fine."),))
    result = cli("run", "-m", "demo", "hi", *options, stdin=b"", terminals=terminals)
    assert (result.code, result.stdout, result.stderr.count("Standard input is empty")) == (0, "Fine.", said)


@pytest.mark.parametrize("stdin", [Keyboard(b"typed\r\n"), io.BytesIO(b"typed\r\n")])
def test_dash_reads_standard_input_even_from_a_keyboard(stdin: io.BytesIO) -> None:
    assert read_prompt(None, "-", stdin) == "typed\n"


@pytest.mark.parametrize("stdin", [Keyboard(), None])
def test_no_prompt(stdin: io.BytesIO | None) -> None:
    with pytest.raises(NoPromptError) as raised:
        read_prompt(None, None, stdin)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("argument", "file", "stdin", "message"),
    [
        ("a", "b.txt", b"", "two prompts: the argument and `-f b.txt`"),
        ("a", "-", b"b", "two prompts: the argument and `-f -`"),
        (None, "", b"a", "`-f` is empty"),
        ("  \n", None, b"", "the prompt is empty"),
        (None, None, b"", "no prompt, and standard input is empty"),
        (None, None, b"\n", "standard input is empty"),
        (None, "-", b"", "standard input is empty"),
        (None, "-", b" \n", "standard input is empty"),
        (None, None, b"ab\0cd", "standard input is not text: it contains a null byte"),
        ("Look:", None, b"\x89PNG", "standard input is not text: byte 0 is not UTF-8"),
        (None, None, "naïve".encode("latin-1"), "standard input is not text: byte 2 is not UTF-8"),
        (None, None, b"\xef\xbb\xbfab\xff", "standard input is not text: byte 5 is not UTF-8"),
        ("caf\udce9", None, b"", "the prompt is not text: its character 4 is not UTF-8"),
    ],
)
def test_what_is_no_prompt(argument: str | None, file: str | None, stdin: bytes, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_prompt(argument, file, io.BytesIO(stdin))
    assert raised.value.message == message
    assert raised.value.hint


def test_files_that_are_no_prompt(tmp_path: Path) -> None:
    empty, binary, missing = tmp_path / "empty", tmp_path / "binary", tmp_path / "missing"
    empty.touch()
    binary.write_bytes(b"\x7fELF\0")
    cases = {
        empty: f"`{empty}` is empty",
        binary: f"`{binary}` is not text: it contains a null byte",
        missing: f"no such file: `{missing}`",
        Path("~nobody-has-this-name/x"): "no such file: `~nobody-has-this-name/x`",
        tmp_path: f"`{tmp_path}` is a directory",
        empty / "below": f"`{empty / 'below'}` cannot be read: Not a directory",
    }
    for path, message in cases.items():
        with pytest.raises(UsageError) as raised:
            read_prompt(None, str(path), None)
        assert raised.value.message == message


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hello")
    secret.chmod(0)
    with as_anyone(), pytest.raises(UsageError, match="cannot be read: Permission denied") as raised:
        read_prompt(None, str(secret), None)
    assert raised.value.hint == "check its permissions"


def test_more_than_any_context_holds_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with path.open("wb") as file:
        file.truncate(10**12)  # a hole: no disk is taken
    with pytest.raises(UsageError, match="log.txt` has more than 16 MB, more than any context holds"):
        read_prompt(None, str(path), None)
    for argument, given in (None, None), ("Summarize this:", None), (None, "-"):
        pipe = io.BytesIO(b"a" * (MAX_BYTES + 10))
        with pytest.raises(UsageError, match="standard input has more than 16 MB"):
            read_prompt(argument, given, pipe)
        assert len(pipe.read()) == 9, "the rest may have no end"
    assert len(read_prompt(None, None, io.BytesIO(b"a" * MAX_BYTES))) == MAX_BYTES


@pytest.mark.parametrize(
    ("argument", "file", "shown"),
    [
        ("Explain this", "main.py", "localdiff run 'Explain this' < main.py"),
        ("Explain this", "-", "localdiff run 'Explain this'"),
        ("word " * 100, "my file", "localdiff run '…' < 'my file'"),
    ],
)
def test_a_prompt_beside_a_file_is_answered_with_the_form_that_works(argument: str, file: str, shown: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_prompt(argument, file, None)
    assert raised.value.hint == f"piped input follows an argument, as in `{shown}`"
