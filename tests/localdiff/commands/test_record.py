"""`localdiff run --record`: a private file, begun when the run begins, readable whatever becomes of it."""

from __future__ import annotations

import hashlib
import json
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from localdiff.commands.run_file import run_file
from localdiff.errors import ResourceError
from localdiff.trace.reader import read_trace
from tests.fakes.engine import IDENTITY, Block, ScriptedEngine
from tests.screens.processes import Cli, command, environment, wait_until

TWO = (Block(text="First."), Block(thought="Hm.", text=" Second."))


@pytest.fixture
def engine(cli: Cli) -> ScriptedEngine:
    cli.engine = ScriptedEngine(blocks=TWO)
    return cli.engine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_a_run_is_recorded_and_nothing_else_changes(cli: Cli, engine: ScriptedEngine, file: Path) -> None:
    result = cli("run", "-m", "demo", "--record", str(file), "--seed", "5", "-s", "Be brief.", "--gold", "42", "hi")
    assert (result.code, result.stdout, result.stderr) == (0, "First. Second.", "")
    trace = read_trace(file)
    assert trace.complete
    assert trace.text() == "First. Second."
    assert trace.text("thought") == "Hm."
    header = trace.header
    assert [(message.role, message.content) for message in header.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert (header.seed, header.gold, header.question) == (5, "42", "hi")
    assert (header.model.name, header.model.recipe, header.machine.hardware) == ("scripted", "bf16", "a script")
    assert header.model.weights is header.model.tokenizer is None


def test_only_its_owner_may_read_it_even_where_it_was_open_before(cli: Cli, engine: ScriptedEngine, file: Path) -> None:
    file.write_text('{"trace": "old and longer than anything that follows"}\n' * 1000)
    file.chmod(0o644)
    cli("run", "-m", "demo", "--record", str(file), "hi")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_trace(file).complete


def test_who_watches_is_told_what_is_in_it(cli: Cli, engine: ScriptedEngine, file: Path) -> None:
    result = cli("run", "-m", "demo", "-v", "--record", str(file), "hi")
    assert result.stderr.endswith(f"The trace is in {file}; it contains the prompt.\n")
    assert "trace" not in cli("run", "-m", "demo", "-q", "--record", str(file), "hi").stderr


def test_weights_and_vocabulary_are_hashed(cli: Cli, tmp_path: Path, file: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_bytes(b"vocabulary")
    cli.engine = ScriptedEngine(identity=replace(IDENTITY, directory=tmp_path))
    cli("run", "-m", "demo", "--record", str(file), "hi")
    model = read_trace(file).header.model
    assert model.weights is not None
    assert model.tokenizer == hashlib.sha256(b"vocabulary").hexdigest()
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    cli("run", "-m", "demo", "--record", str(file), "hi")
    assert read_trace(file).header.model.weights != model.weights


@pytest.mark.parametrize("option", ["--record", "--events", "-o"])
def test_a_run_that_fails_before_it_begins_leaves_the_file_as_it_was(cli: Cli, file: Path, option: str) -> None:
    def load(_request: object, _progress: object) -> object:
        raise ResourceError("the device is gone")

    assert cli("run", "-m", "demo", option, str(file), "hi", load=load).code == 4
    assert not file.exists()
    file.write_text('{"trace": "old"}')
    assert cli("run", "-m", "demo", option, str(file), "hi", load=load).code == 4
    assert file.read_text() == '{"trace": "old"}'


@pytest.mark.parametrize("command", [["run", "hi"], ["chat"]])
def test_a_file_that_is_not_a_trace_is_not_replaced(cli: Cli, file: Path, command: list[str]) -> None:
    file.write_text("notes of mine")
    file.chmod(0o644)
    result = cli(*command, "-m", "demo", "--record", str(file))
    hint = "hint: `--record` replaces only traces: give it another name\n"
    assert (result.code, result.stderr) == (2, f"error: `{file}` exists and is not a trace\n{hint}")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("notes of mine", 0o644)


def test_a_link_to_a_new_file_outlives_a_run_that_never_begins(cli: Cli, file: Path) -> None:
    def load(_request: object, _progress: object) -> object:
        raise ResourceError("the device is gone")

    file.symlink_to(file.with_name("new.jsonl"))
    assert cli("run", "-m", "demo", "--record", str(file), "hi", load=load).code == 4
    assert list(file.parent.iterdir()) == [file]


def test_a_run_replaces_all_that_was_in_the_file(cli: Cli, engine: ScriptedEngine, file: Path) -> None:
    file.write_text("old\n" * 10_000)
    assert cli("run", "-m", "demo", "--events", str(file), "hi").code == 0
    first, *_, last = (json.loads(line)["event"] for line in file.read_text().splitlines())
    assert (first, last) == ("run_started", "run_finished")


def test_a_run_that_fails_later_leaves_what_happened(cli: Cli, file: Path) -> None:
    cli.engine = ScriptedEngine(blocks=TWO, error=ResourceError("the device is gone"))
    assert cli("run", "-m", "demo", "--record", str(file), "hi").code == 4
    trace = read_trace(file)
    assert not trace.complete
    assert trace.text() == "First. Second."
    assert trace.finished is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--record", "-"], "`--record` takes the name of a file\nhint: `localdiff run --events -` writes events to"),
        (["--record", "x.jsonl", "--gold", "a\udcff"], "`--gold` is not text: its character 2 is not UTF-8"),
        (["--gold", "42"], "`--gold` is kept in a trace, and none is recorded"),
        (["--record-top-k", "3"], "`--record-top-k` has nowhere to put them\nhint: add `--record FILE` or `--events"),
        (["--record", "{file}", "--record-top-k", "65"], "`--record-top-k 65` must be <= 64"),
        (["--record", "{file}", "-o", "{file}"], "`-o` and `--record` both name"),
        (["--record", "{file}", "--events", "{file}"], "`--events` and `--record` both name"),
        (["--events", "{file}", "-o", "{file}"], "`-o` and `--events` both name"),
        (
            ["--record", "/no/such/folder/x"],
            "there is no folder `/no/such/folder`\nhint: create it first, or give `--record`",
        ),
        (["--record", "/dev"], "`/dev` cannot be written: Is a directory\nhint: `--record` takes the name of a file"),
        (
            ["--events", "/proc/x"],
            "`/proc/x` cannot be written: No such file or directory\nhint: give `--events` a file",
        ),
    ],
)
def test_what_cannot_be(cli: Cli, engine: ScriptedEngine, file: Path, arguments: list[str], words: str) -> None:
    result = cli("run", "-m", "demo", *[argument.format(file=file) for argument in arguments], "hi")
    assert result.code == 2
    assert words in result.stderr
    assert "hint: " in result.stderr
    assert engine.calls == []


@pytest.mark.parametrize("option", ["--record", "--events"])
@pytest.mark.parametrize("link", ["none", "hard", "symbolic"])
def test_a_prompt_is_not_overwritten(cli: Cli, engine: ScriptedEngine, file: Path, option: str, link: str) -> None:
    file.write_text("hi")
    named = file if link == "none" else file.with_name("another name")
    if link == "hard":
        named.hardlink_to(file)
    elif link == "symbolic":
        named.symlink_to(file)
    result = cli("run", "-m", "demo", "-f", str(file), option, str(named))
    assert (result.code, file.read_text(), engine.calls) == (2, "hi", [])
    assert f"`-f` and `{option}` both name" in result.stderr


def test_a_run_that_waits_for_its_viewer_is_not_recorded(cli: Cli, engine: ScriptedEngine, file: Path) -> None:
    result = cli("run", "-m", "demo", "--slow", "1", "--record", str(file), "hi", terminals="stderr")
    assert (result.code, engine.calls) == (2, [])
    assert "`--slow` and `--record` exclude each other" in result.stderr


def test_a_process_that_is_killed_leaves_a_trace_of_its_steps(file: Path) -> None:
    script = {"blocks": [{"text": "Slow.", "steps": 10_000}], "pause": 0.1}
    child = subprocess.Popen(
        command(script, ["run", "-m", "demo", "--record", str(file), "hi"]),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: file.exists() and file.read_bytes().count(b'"denoise_step"') >= 3, child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    trace = read_trace(file)
    assert not trace.complete
    assert len(trace.blocks[0].steps) >= 3


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there, which would keep readers out too")
@pytest.mark.parametrize("option", ["--record", "--events"])
def test_two_runs_do_not_write_the_same_file(cli: Cli, engine: ScriptedEngine, file: Path, option: str) -> None:
    with run_file("--record", file, hint="") as first:
        first.begin()
        first.file.write(b'{"trace": "of the first"}\n')
        first.file.flush()
        result = cli("run", "-m", "demo", option, str(file), "hi")
        assert (result.code, result.stdout) == (2, "")
        assert f"another process is writing `{file}`" in result.stderr
    assert file.read_bytes() == b'{"trace": "of the first"}\n'
    assert cli("run", "-m", "demo", option, str(file), "hi").code == 0


def test_a_run_that_is_stopped_has_its_footer(cli: Cli, file: Path) -> None:
    cli.engine = ScriptedEngine(blocks=(Block(text="One.", steps=2),), reason="cancelled")
    cli("run", "-m", "demo", "--record", str(file), "hi")
    trace = read_trace(file)
    assert trace.complete
    assert trace.finished is not None
    assert trace.finished.reason == "cancelled"


def test_it_works_beside_events_and_an_output_file(
    cli: Cli, engine: ScriptedEngine, tmp_path: Path, file: Path
) -> None:
    events, answer = tmp_path / "events.jsonl", tmp_path / "answer.txt"
    arguments = ["--events", str(events), "-o", str(answer), "--record", str(file)]
    assert cli("run", "-m", "demo", *arguments, "hi").code == 0
    assert answer.read_text() == read_trace(file).text()
    assert len(events.read_text().splitlines()) == len(read_trace(file).events)
    assert json.loads(events.read_text().splitlines()[-1])["event"] == "run_finished"
