"""`localdiff run` inside one process: what goes in, what comes out, and on which stream."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from localdiff import __version__
from localdiff.errors import ResourceError
from localdiff.events import Event
from localdiff.options import CONTEXT_SIZE, GenerateOptions
from tests.fakes.engine import IDENTITY, Block, ScriptedEngine
from tests.screens.processes import Cli, environment, process

AN_ANSWER = {"blocks": [{"text": "An answer."}]}
EVENTS = ("run", "-m", "demo", "hi", "--events", "-")
TWO = (Block(text="First line.\nSecond "), Block(text="line."))

KEYS = [
    "text",
    "token_ids",
    "tokens",
    "reason",
    "prompt_tokens",
    "prompt_seconds",
    "blocks",
    "seconds",
    "tok_per_s",
    "denoise_passes",
    "commit_passes",
    "tokens_per_step",
    "seed",
    "model",
    "adapter",
    "recipe",
    "revision",
    "device",
    "version",
]


@pytest.fixture
def engine(cli: Cli) -> ScriptedEngine:
    cli.engine = ScriptedEngine(blocks=TWO)
    return cli.engine


def test_the_answer_is_on_stdout_as_it_is_and_nothing_else_anywhere(cli: Cli, engine: ScriptedEngine) -> None:
    result = cli("run", "-m", "demo", "hi")
    assert (result.code, result.stdout, result.stderr) == (0, "First line.\nSecond line.", "")
    assert [prompt for prompt, _ in engine.calls] == ["hi"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "prompt"),
    [
        (["hi"], None, "hi"),
        (["hi"], b"there\n", "hi\n\nthere\n"),
        ([], b"piped", "piped"),
        (["-f", "-"], b"piped", "piped"),
        (["--", "-5 + 3"], None, "-5 + 3"),
    ],
)
def test_the_prompt(cli: Cli, engine: ScriptedEngine, arguments: list[str], stdin: bytes | None, prompt: str) -> None:
    assert cli("run", "-m", "demo", *arguments, stdin=stdin).code == 0
    assert engine.calls[0][0] == prompt


def test_a_prompt_file(cli: Cli, engine: ScriptedEngine, prompt_file: Path) -> None:
    assert cli("run", "-m", "demo", "-f", str(prompt_file)).code == 0
    assert engine.calls[0][0] == "Say hello.\nTwice.\n"


def test_every_setting_reaches_the_engine(cli: Cli, engine: ScriptedEngine) -> None:
    arguments = (
        "--max-tokens 9 --context 99 --steps 8 --cap 4 --entropy-bound 0.2 --t-min 0.3 --t-max 0.9 --temperature 0 "
        "--stability 2 --confidence 0.01 --seed 11 --noise reference --think -s terse"
    )
    assert cli("run", "-m", "demo", "hi", *arguments.split()).code == 0
    assert engine.calls[0][1] == GenerateOptions(
        max_tokens=9,
        context_size=99,
        steps=8,
        cap=4,
        entropy_bound=0.2,
        t_min=0.3,
        t_max=0.9,
        temperature=0.0,
        stability=2,
        confidence=0.01,
        seed=11,
        noise="reference",
        think=True,
        system="terse",
    )


def test_without_settings_the_defaults_are_the_library_s(cli: Cli, engine: ScriptedEngine) -> None:
    cli("run", "-m", "demo", "hi")
    assert engine.calls[0][1] == GenerateOptions(context_size=CONTEXT_SIZE)


def test_the_engine_is_loaded_with_what_was_asked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        @staticmethod
        def load(model: str, **settings: object) -> ScriptedEngine:
            seen.append((model, settings))
            return ScriptedEngine()

    seen: list[tuple[str, dict[str, object]]] = []
    module = ModuleType("localdiff.engine")
    module.Engine = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "localdiff.engine", module)
    arguments = "-m owner/name --revision abc --offline --device cpu --dtype bf16 --activations int8"
    assert cli("run", "hi", *arguments.split()).code == 0
    asked = {
        "device": "cpu",
        "dtype": "bf16",
        "activations": "int8",
        "revision": "abc",
        "offline": True,
        "context_size": 8192,
        "max_memory": None,
        "adapter": None,
    }
    ((model, settings),) = seen
    assert callable(settings.pop("progress")) and callable(settings.pop("confirm"))
    assert (model, settings) == ("owner/name", asked)


def test_without_a_prompt_it_shows_the_usage_and_does_not_wait(cli: Cli) -> None:
    result = cli("run")
    assert result.code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Usage: localdiff run [OPTIONS] [PROMPT]",
        "error: no prompt",
        "hint: give it in quotes, with `-f FILE`, or through a pipe; `localdiff chat` is for a conversation",
    ]


def test_what_is_wrong_is_found_before_a_model_is_loaded(cli: Cli, tmp_path: Path) -> None:
    def load(_request: object, _progress: object) -> ScriptedEngine:
        raise AssertionError("a model was loaded")

    for arguments in (
        ["hi", "-o", str(tmp_path / "no" / "file")],
        ["hi", "-o", str(tmp_path)],
        ["hi", "--events", str(tmp_path / "no" / "file")],
        ["hi", "--events", str(tmp_path)],
        ["hi", "--json", "--events", "-"],
        ["hi", "-o", str(tmp_path / "a"), "--events", str(tmp_path / "a")],
        ["-f", str(tmp_path / "missing")],
    ):
        result = cli("run", "-m", "demo", *arguments, load=load)
        assert result.code == 2, arguments
        assert result.stdout == ""
        assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["error", "hint"]


def test_json(cli: Cli, engine: ScriptedEngine) -> None:
    engine.identity = replace(IDENTITY, model="owner/name", revision="abc123")
    result = cli("run", "-m", "owner/name", "--json", "--seed", "3", "hi")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert list(found) == KEYS
    assert result.stdout.count("\n") == 1
    assert found["text"] == "First line.\nSecond line."
    assert found["tokens"] == len(found["token_ids"]) == 21
    assert found["reason"] == "end_of_turn"
    assert (found["prompt_tokens"], found["prompt_seconds"]) == (6, 0.5)
    assert found["blocks"] == [{"steps": 3, "seconds": 0.75, "reason": "converged"}] * 2
    assert (found["seconds"], found["tok_per_s"], found["tokens_per_step"]) == (1.5, 14.0, 3.5)
    assert (found["denoise_passes"], found["commit_passes"]) == (6, 1)
    assert found["seed"] == 3
    assert (found["model"], found["recipe"], found["revision"]) == ("owner/name", "bf16", "abc123")
    assert (found["device"], found["version"]) == ("cpu", __version__)


def test_json_keeps_characters_and_hides_thoughts(cli: Cli) -> None:
    cli.engine = ScriptedEngine(blocks=(Block(thought="hm", text="naïve ✓"),))
    assert json.loads(cli("run", "-m", "demo", "--json", "hi").stdout)["text"] == "naïve ✓"
    assert "naïve ✓" in cli("run", "-m", "demo", "--json", "hi").stdout
    on_screen = cli("run", "-m", "demo", "--json", "hi", terminals="stdout").stdout
    assert on_screen.isascii()
    assert json.loads(on_screen)["text"] == "naïve ✓"


@pytest.mark.parametrize("options", [["--json"], ["--events", "-"]])
def test_json_is_json_in_an_encoding_that_lacks_characters(options: list[str]) -> None:
    script = {"blocks": [{"text": "naïve ✓😀"}]}
    result = process("run", "-m", "demo", *options, "hi", script=script, env=environment(PYTHONIOENCODING="ascii"))
    assert result.code == 0
    assert "naïve ✓😀" in [json.loads(line).get("text") for line in result.stdout.splitlines()]


def test_events(cli: Cli, engine: ScriptedEngine, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    result = cli("run", "-m", "demo", "--events", str(path), "hi")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert result.stdout == "First line.\nSecond line."
    assert {event["schema"] for event in events} == {1}
    block = ["block_started", *["denoise_step"] * 3, "block_committed", "text_committed"]
    assert [event["event"] for event in events] == ["run_started", *["prefilled"] * 2, *block, *block, "run_finished"]


def test_a_misspelt_variable_is_told(cli: Cli, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_STEP", "1")
    monkeypatch.setenv("LOCALDIFF_QQ", "1")  # may be another program's
    assert (
        cli("run", "-m", "demo", "hi").stderr == "warning: LOCALDIFF_STEP is not read; did you mean LOCALDIFF_STEPS?\n"
    )
    assert cli("run", "-m", "demo", "-q", "hi").stderr == ""


def test_events_on_stdout_take_the_place_of_the_text(cli: Cli, engine: ScriptedEngine) -> None:
    result = cli("run", "-m", "demo", "--events", "-", "hi")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.stderr == ""
    assert "".join(event["text"] for event in events if event["event"] == "text_committed") == (
        "First line.\nSecond line."
    )


def test_events_on_stdout_and_the_answer_in_a_file(cli: Cli, engine: ScriptedEngine, tmp_path: Path) -> None:
    path = tmp_path / "answer"
    result = cli("run", "-m", "demo", "--events", "-", "-o", str(path), "hi")
    assert path.read_text() == "First line.\nSecond line."
    assert cli("run", "-m", "demo", "--json", "--events", "-", "-o", str(path), "hi").stdout == result.stdout
    assert json.loads(path.read_text())["text"] == "First line.\nSecond line."
    assert result.stdout.startswith('{"schema":1,"event":"run_started"')


@pytest.mark.parametrize("option", ["--events", "--record"])
@pytest.mark.parametrize("quiet", [False, True])
def test_a_full_disk_costs_the_file_and_not_the_answer(
    cli: Cli, engine: ScriptedEngine, option: str, quiet: bool
) -> None:
    mode = os.stat("/dev/full").st_mode
    result = cli("run", "-m", "demo", *["-q"] * quiet, option, "/dev/full", "hi")
    assert (result.code, result.stdout) == (4, "First line.\nSecond line.")
    failure = "`/dev/full` cannot be written: No space left on device"
    warning = "" if quiet else f"warning: {failure}; the run continues without it\n"
    assert result.stderr == f"{warning}error: {failure}\nhint: give `{option}` a file elsewhere\n"
    assert os.stat("/dev/full").st_mode == mode


@pytest.mark.parametrize("option", ["--events", "--record"])
def test_a_reader_that_leaves_a_pipe_costs_the_pipe_and_not_the_answer(
    cli: Cli, engine: ScriptedEngine, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = engine.generate

    def generate(prompt: str, options: GenerateOptions, *, cancel: threading.Event | None = None) -> Iterator[Event]:
        os.close(reader)
        return script(prompt, options, cancel=cancel)

    monkeypatch.setattr(engine, "generate", generate)
    result = cli("run", "-m", "demo", option, str(pipe), "hi")
    assert (result.code, result.stdout) == (4, "First line.\nSecond line.")
    failure = f"`{pipe}` cannot be written: Broken pipe"
    assert result.stderr.startswith(f"warning: {failure}; the run continues without it\nerror: {failure}\n")


@pytest.mark.parametrize("options", [[], ["-o", "answer"]])
def test_a_reader_of_events_on_stdout_that_leaves_costs_no_answer_that_goes_to_a_file(
    tmp_path: Path, options: list[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as stdout:
        done = process(*EVENTS, *options, script=AN_ANSWER, stdout=stdout, cwd=tmp_path)
    if not options:
        assert (done.code, done.stderr) == (141, "")
        return
    assert (done.code, (tmp_path / "answer").read_text()) == (4, "An answer.")
    failure = "`stdout` cannot be written: Broken pipe"
    words = f"warning: {failure}; the run continues without it\nerror: {failure}\nhint: give `--events` a file\n"
    assert done.stderr == words


def test_events_that_could_not_be_written_do_not_have_the_answer(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as stdout:
        done = process(*EVENTS, "-o", "/dev/full", script={}, stdout=stdout, cwd=tmp_path)
    assert done.code == 4
    assert "`/dev/full` cannot be written: No space left on device; the text is lost\n" in done.stderr


def test_events_on_stdout_replace_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("a") as stdout:
        assert process(*EVENTS, "-o", "answer", script=AN_ANSWER, stdout=stdout, cwd=tmp_path).code == 0
    assert log.read_text().startswith('before\n{"schema":1,')


def test_an_answer_whose_reader_has_left_is_printed(
    cli: Cli, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("localdiff.commands.output_file._write", leave)
    result = cli("run", "-m", "demo", "-o", "/dev/null", "hi")
    assert (result.code, result.stdout) == (4, "First line.\nSecond line.\n")
    assert result.stderr == "error: `/dev/null` was closed by its reader, so stdout has the text\n"


def test_a_full_disk_costs_no_answer_in_a_file(cli: Cli, engine: ScriptedEngine, tmp_path: Path) -> None:
    path, events = tmp_path / "answer.txt", tmp_path / "events.jsonl"
    files = ("-o", str(path), "--record", "/dev/full", "--events", str(events))
    assert cli("run", "-m", "demo", *files, "hi", terminals="stderr").code == 4
    assert path.read_text() == "First line.\nSecond line."
    assert json.loads(events.read_text().splitlines()[-1])["event"] == "run_finished"


@pytest.mark.parametrize("wanted", [[], ["--json"], ["-q"]])
def test_an_answer_whose_file_cannot_be_written_is_printed(cli: Cli, engine: ScriptedEngine, wanted: list[str]) -> None:
    result = cli("run", "-m", "demo", "-o", "/dev/full", *wanted, "hi")
    answer = json.loads(result.stdout)["text"] if "--json" in wanted else result.stdout.removesuffix("\n")
    assert (result.code, answer) == (4, "First line.\nSecond line.")
    assert result.stderr == (
        "error: `/dev/full` cannot be written: No space left on device, so stdout has the text\n"
        "hint: give `-o` a file on another disk\n"
    )


def test_it_is_not_printed_between_events(cli: Cli, engine: ScriptedEngine) -> None:
    result = cli("run", "-m", "demo", "-o", "/dev/full", "--events", "-", "hi")
    assert result.code == 4
    assert [json.loads(line)["event"] for line in result.stdout.splitlines()][-1] == "run_finished"
    words = "No space left on device, so the events on stdout have the text"
    assert result.stderr.startswith(f"error: `/dev/full` cannot be written: {words}\n")


def test_an_output_file(cli: Cli, engine: ScriptedEngine, tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    result = cli("run", "-m", "demo", "-o", str(path), "hi")
    assert (result.code, result.stdout, result.stderr) == (0, "", "")
    assert path.read_text() == "First line.\nSecond line."
    assert cli("run", "-m", "demo", "--json", "-o", str(path), "hi").stdout == ""
    assert json.loads(path.read_text())["text"] == "First line.\nSecond line."


def test_a_run_that_fails_leaves_the_output_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    cli.engine = ScriptedEngine(error=ResourceError("the device is gone"))
    assert cli("run", "-m", "demo", "-o", str(path), "hi").code == 4
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["answer.txt"]


def test_verbose_says_the_seed_and_how_every_block_went(cli: Cli) -> None:
    cli.engine = ScriptedEngine(blocks=(Block(text="a", steps=1), Block(text="b", steps=48, reason="step_limit")))
    lines = cli("run", "-m", "demo", "-v", "hi").stderr.splitlines()
    assert lines[0].startswith("model scripted: bf16 weights, fp32 on cpu, loaded in ")
    assert lines[1:4] == ["seed 7", "block 1: 1 step, 0.25 s, converged", "block 2: 48 steps, 12 s, step limit"]
    assert lines[4].startswith("2 tokens · 2 blocks · 49 steps · 0.16 tok/s")


def test_stats_prints_the_footer_alone(cli: Cli, engine: ScriptedEngine) -> None:
    assert cli("run", "-m", "demo", "--stats", "hi").stderr == (
        "21 tokens · 2 blocks · 6 steps · 14 tok/s · prompt 6 tok in 0.50 s · ctx 27/8,192\n"
    )


def test_a_limit_is_no_failure_but_is_said(cli: Cli) -> None:
    cli.engine = ScriptedEngine(reason="length")
    result = cli("run", "-m", "demo", "--max-tokens", "6", "--color", "never", "hi", terminals="stderr")
    assert result.code == 0
    assert result.stderr.endswith("hint: reached --max-tokens 6; raise it to get the rest\n")
    cli.engine = ScriptedEngine(reason="context_full")
    shown = cli("run", "-m", "demo", "--context", "12", "--color", "never", "hi", terminals="stderr").stderr
    assert shown.endswith("hint: the context of 12 tokens is full; raise `--context` to get the rest\n")
    cli.engine = ScriptedEngine(reason="context_full", max_positions=1200)
    shown = cli("run", "-m", "demo", "--context", "9000", "--color", "never", "hi", terminals="stderr").stderr
    assert "ctx 12/1,200\n" in shown
    assert shown.endswith("hint: the context of 1,200 tokens is full; this model takes no more\n")


def test_what_other_modules_log(cli: Cli) -> None:
    import logging

    def load(_request: object, _progress: object) -> ScriptedEngine:
        logging.getLogger("localdiff.load").info("skipped 356 vision tensors")
        logging.getLogger("localdiff.load").warning("the weights are\x1b[2J odd")
        return ScriptedEngine()

    warning = "warning: the weights are\\x1b[2J odd\n"
    assert cli("run", "-m", "demo", "hi", load=load).stderr == warning
    assert cli("run", "-m", "demo", "-q", "hi", load=load).stderr == ""
    assert cli("run", "-m", "demo", "-v", "hi", load=load).stderr.startswith(
        f"info: skipped 356 vision tensors\n{warning}"
    )
    assert logging.getLogger("localdiff").handlers == []


@pytest.mark.parametrize(
    ("model", "words"), [(["-m", "nothere"], "`nothere` is neither `demo`, nor"), ([], "no model was named, and no")]
)
@pytest.mark.parametrize("prompt", [[], ["-f", "-"], ["hi"]])
def test_a_model_that_is_nowhere_is_told_before_the_prompt_is_read(
    cli: Cli, model: list[str], words: str, prompt: list[str]
) -> None:
    """Whatever writes into the pipe may take minutes."""
    cli.engine = ScriptedEngine()
    result = cli("run", *model, *prompt, stdin=b"no text: \xff")
    assert (result.code, result.stderr.startswith(f"error: {words}")) == (3, True)


def test_an_output_that_cannot_be_written_is_told_before_the_prompt_is_read(cli: Cli) -> None:
    cli.engine = ScriptedEngine()
    result = cli("run", "-o", "/no/such/folder/answer.txt", stdin=b"no text: \xff")
    assert (result.code, result.stderr.splitlines()[0]) == (2, "error: there is no folder `/no/such/folder`")


def test_that_there_is_no_prompt_is_told_before_anything_about_the_model(cli: Cli) -> None:
    cli.engine = ScriptedEngine()
    assert "error: no prompt\n" in cli("run", "-m", "nothere").stderr
    assert cli("run", "-m", "nothere", "-f", "nofile").stderr.startswith("error: no such file: `nofile`")
