"""`localdiff chat` on pipes, and what it says of a session that it continues."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localdiff.commands.chat import command as command
from localdiff.commands.chat.request import ChatRequest
from localdiff.errors import ResourceError, WeightsError
from tests.fakes.chat_model import ScriptedChatModel
from tests.screens.processes import Cli


class Loading:
    """Stands in for the loading of models.

    Attributes:
        model: what it loads.
        error: makes an exception that is raised instead, unless it is None.
    """

    def __init__(self) -> None:
        self.model = ScriptedChatModel()
        self.error: Callable[[], Exception] | None = None

    def __call__(self, _request: ChatRequest, _progress: object) -> ScriptedChatModel:
        if self.error is not None:
            raise self.error()
        return self.model


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Loading:
    """Loads for every chat of the test."""
    load = Loading()
    monkeypatch.setattr(command, "load_chat_model", load)
    return load


@pytest.fixture
def sessions(home: Path) -> Path:
    """The folder of sessions."""
    return home / "sessions"


def test_a_program_is_told_that_a_session_is_damaged(cli: Cli, loading: Loading, sessions: Path) -> None:
    assert cli("chat", "--session", "plans", stdin=b"Hi\n").stderr == ""
    with (sessions / "plans.jsonl").open("a") as file:
        file.write('{"text": "cut\n')
    assert cli("chat", "--session", "plans", stdin=b"Hi\n").stderr == (
        "warning: session `plans` is damaged: in line 3, it is not JSON; 1 turn is lost; "
        "the original file is kept as `plans.jsonl.damaged`\n"
    )


def test_a_program_is_told_that_another_one_writes_to_its_session(cli: Cli, loading: Loading, sessions: Path) -> None:
    cli("chat", "--session", "plans", stdin=b"Hi\n")
    path, count = sessions / "plans.jsonl", loading.model.count

    def meddle(text: str, *, max_tokens: int | None = None) -> int:
        path.write_bytes(path.read_bytes() + b"\n")
        return count(text)

    loading.model.count = meddle  # type: ignore[method-assign]
    done = cli("chat", "--session", "plans", stdin=b"/file pyproject.toml\n/file off\nHi\n")
    assert "warning: `plans` was changed by another program; this session is now `plans-2`\n" in done.stderr


def test_a_remembered_model_that_is_gone_is_said_to_be_the_session_s(
    cli: Cli, loading: Loading, sessions: Path
) -> None:
    cli("chat", "--session", "plans", stdin=b"Hi\n")
    loading.error = lambda: WeightsError("no such directory: `/gone`", "`--model` takes a directory")
    other = "session `plans` used it; `-m NAME` continues it with another model"
    assert cli("chat", "-c", stdin=b"Hi\n").stderr == f"error: no such directory: `/gone`\nhint: {other}\n"
    assert "hint: `--model` takes a directory\n" in cli("chat", "-c", "-m", "/gone", stdin=b"Hi\n").stderr
    assert "hint: `--model` takes a directory\n" in cli("chat", "--session", "new", stdin=b"Hi\n").stderr
    header = (sessions / "plans.jsonl").read_text().replace('"think"', '"adapter":"gone","think"')
    (sessions / "plans.jsonl").write_text(header)
    assert f"hint: {other}, `--adapter NAME` with another adapter\n" in cli("chat", "-c", stdin=b"Hi\n").stderr
    assert f"hint: {other}\n" in cli("chat", "-c", "--adapter", "mine", stdin=b"Hi\n").stderr
    own = "an adapter is a directory that PEFT saved"
    loading.error = lambda: WeightsError("there is no adapter `mine`", own)
    assert f"hint: {own}\n" in cli("chat", "-c", "--adapter", "mine", stdin=b"Hi\n").stderr
    assert f"hint: {other}, `--adapter NAME` with another adapter\n" in cli("chat", "-c", stdin=b"Hi\n").stderr
    loading.error = lambda: ResourceError("not enough memory", "use a smaller `--context`")
    assert "hint: use a smaller" in cli("chat", "-c", stdin=b"Hi\n").stderr


def test_the_last_session_that_can_be_read_is_continued(cli: Cli, loading: Loading, sessions: Path) -> None:
    cli("chat", "--session", "plans", stdin=b"Hi\n")
    for name, content in (("empty", ""), ("headless", "{}\n")):
        (sessions / f"{name}.jsonl").write_text(content)
        os.utime(sessions / f"{name}.jsonl", (2**31, 2**31))
    done = cli("chat", "-c", stdin=b"More\n")
    assert (done.code, loading.model.asked[-1]) == (0, ["Hi", "Hello.", "More"])
    assert [line.split(":")[:2] for line in done.stderr.splitlines()] == [
        ["warning", " session `headless` cannot be read"],
        ["warning", " session `empty` cannot be read"],
    ]
    assert f"; `{sessions}/empty.jsonl` is skipped\n" in done.stderr
    (sessions / "plans.jsonl").unlink()
    done = cli("chat", "-c", stdin=b"More\n")
    assert done.code == 2
    assert done.stderr.endswith("error: there is no session to continue\nhint: `localdiff chat` starts one\n")


def test_a_session_that_was_named_and_cannot_be_read_is_an_error(cli: Cli, loading: Loading, sessions: Path) -> None:
    sessions.mkdir()
    (sessions / "empty.jsonl").touch()
    done = cli("chat", "--session", "empty", stdin=b"Hi\n")
    assert done.code == 2
    assert done.stderr.endswith(f"hint: look at `{sessions}/empty.jsonl`\n")


def test_sessions_are_listed_without_a_model(cli: Cli, loading: Loading, sessions: Path) -> None:
    empty = cli("chat", "--list")
    assert (empty.code, empty.stdout, empty.stderr) == (0, "", "Nothing is saved yet.\n")
    for number, name in enumerate(("plans", "more-plans")):
        cli("chat", "--session", name, stdin=b"Hi\n" * (number + 1))
        os.utime(sessions / f"{name}.jsonl", (number, number))
    loading.error = AssertionError
    listed = cli("chat", "--list")
    assert (listed.code, listed.stderr) == (0, "")
    assert [(line.split()[0], line.split()[3:]) for line in listed.stdout.splitlines()] == [
        ("more-plans", ["2", "turns", "Hi"]),
        ("plans", ["1", "turn", "Hi"]),
    ]
