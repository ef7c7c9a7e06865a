"""`localdiff chat` from its options to the request, and what is refused before a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localdiff.chat.settings import DisplaySettings
from localdiff.commands.chat import command as command
from localdiff.commands.chat.request import ChatRequest
from localdiff.commands.live import LiveOptions
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.record import RecordOptions
from localdiff.options import CONTEXT_SIZE, GenerateOptions
from tests.fakes.chat_model import Said, ScriptedChatModel
from tests.fakes.engine import Block
from tests.screens.processes import Cli


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ChatRequest]:
    """What the command line asked for; nothing is loaded."""
    found: list[ChatRequest] = []

    def note(request: ChatRequest, *_: Any, **__: Any) -> int:
        found.append(request)
        return 0

    monkeypatch.setattr(command, "chat", note)
    return found


def test_without_options_everything_is_the_default(cli: Cli, requests: list[ChatRequest]) -> None:
    assert cli("chat").code == 0
    (request,) = requests
    assert request.options == GenerateOptions(context_size=CONTEXT_SIZE)
    assert request.display == DisplaySettings()
    assert (request.origins, request.resume, request.session, request.private) == ({}, False, None, False)


def test_every_option_arrives(cli: Cli, requests: list[ChatRequest]) -> None:
    options = (
        "-m demo -s Brief. --think -c --no-history --no-markdown --device cpu --dtype fp32 --max-memory 2GB --offline "
        "--revision abc --max-tokens 9 --context 99 --steps 8 --cap 7 --entropy-bound 0.2 --t-min 0.3 --t-max 0.9 "
        "--stability 2 --confidence 0.1 --seed 5 --live off --palette mono --fps 5 --color never "
        "--record run.jsonl --record-top-k 3"
    )
    assert cli("chat", *options.split()).code == 0
    (request,) = requests
    assert request.options == GenerateOptions(
        system="Brief.",
        think=True,
        max_tokens=9,
        context_size=99,
        steps=8,
        cap=7,
        entropy_bound=0.2,
        t_min=0.3,
        t_max=0.9,
        stability=2,
        confidence=0.1,
        seed=5,
        record_top_k=3,
    )
    assert request.record == RecordOptions(file=Path("run.jsonl"))
    assert request.choice == ModelChoice(
        model="demo", device="cpu", dtype="fp32", max_memory=2_000_000_000, offline=True, revision="abc"
    )
    assert request.live == LiveOptions(requested="off", palette="mono", fps=5, color="never")
    assert request.display == DisplaySettings(live="off", think="show", markdown=False)
    assert (request.resume, request.private) == (True, True)
    named = ("steps", "think", "system", "seed", "context", "live", "markdown")
    assert {request.origins[name] for name in named} == {"command line"}


def test_settings_say_where_they_came_from(
    cli: Cli, requests: list[ChatRequest], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("LOCALDIFF_CAP", "9")
    (home / "config.toml").write_text('[generate]\nsteps = 12\nt_min = 0.2\n[ui]\nlive = "line"\n')
    assert cli("chat", "--temperature", "0.5").code == 0
    (request,) = requests
    assert request.options == GenerateOptions(steps=12, cap=9, temperature=0.5, context_size=CONTEXT_SIZE)
    assert request.origins == {
        "cap": "LOCALDIFF_CAP",
        "live": f"{home}/config.toml:5",
        "steps": f"{home}/config.toml:2",
        "temperature": "command line",
    }
    assert request.display.live == "line"


@pytest.mark.parametrize(("value", "private"), [("1", True), ("0", False), ("", False)])
def test_the_environment_can_ask_for_privacy(
    cli: Cli, requests: list[ChatRequest], monkeypatch: pytest.MonkeyPatch, value: str, private: bool
) -> None:
    monkeypatch.setenv("LOCALDIFF_NO_HISTORY", value)
    assert cli("chat").code == 0
    assert requests[0].private is private


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-c"], "there is no session to continue"),
        (["-c", "--session", "x"], "`-c` and `--session` both name a session"),
        (["--session", "../x"], "`../x` cannot name a session"),
        (["--live", "on"], "`--live on` has nowhere to draw: stderr is not a terminal"),
        (["--steps", "0"], "`--steps 0` must be >= 1"),
        (["hello"], "too many arguments: `hello`\nhint: prompts are typed in the chat"),
    ],
)
def test_what_cannot_be_met_is_a_usage_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    loaded: list[object] = []
    monkeypatch.setattr(ModelChoice, "load", lambda *_, **__: loaded.append(None))
    done = cli("chat", *arguments, stdin=b"")
    assert (done.code, done.stdout) == (2, "")
    assert f"error: {message}" in done.stderr
    assert "hint: " in done.stderr
    assert not loaded


def test_a_session_remembers_its_model(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    models: list[str | None] = []

    def load(request: ChatRequest, _progress: object) -> ScriptedChatModel:
        models.append(request.choice.model)
        return ScriptedChatModel()

    monkeypatch.setattr(command, "load_chat_model", load)
    assert cli("chat", "-m", "owner/name", stdin=b"Hi\n").code == 0
    assert cli("chat", "-c", stdin=b"Hi\n").code == 0
    assert cli("chat", "-c", "-m", "other", stdin=b"Hi\n").code == 0
    assert models == ["owner/name", "scripted", "other"]


def test_what_reads_answers_from_a_pipe_is_warned_of_those_that_were_cut(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        replies=[
            Said(blocks=(Block(text="Once"),), reason="length"),
            Said(blocks=(Block(text="upon"),), reason="context_full"),
            Said(blocks=(Block(text="a time."),)),
        ]
    )
    monkeypatch.setattr(command, "load_chat_model", lambda *_: model)
    done = cli("chat", "-m", "demo", "--max-tokens", "32", stdin=b"Hi\nHi\nHi\n")
    assert (done.code, done.stdout) == (0, "Once\nupon\na time.\n")
    warning = "warning: the answer is incomplete\nhint: "
    assert done.stderr == (
        f"{warning}reached max-tokens 32; `/set max-tokens N` allows longer answers\n"
        f"{warning}the context of 8,192 tokens is full; `/undo` or `/clear` frees space, `/set context N` makes more\n"
    )
