"""`localdiff bench step` on the command line: what is mistyped, and what goes to which stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from localdiff.bench.step.report import Report
from localdiff.commands import bench_step as command
from localdiff.commands.bench_step import StepRequest
from localdiff.commands.loading import IMPORTING
from localdiff.commands.model_choice import ModelChoice
from localdiff.errors import ArgumentError
from localdiff.ui import status
from tests.fakes.step_report import report
from tests.screens.processes import Cli


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--steps", "0"], "`--steps 0` must be from 1 to 1,000", "`localdiff bench step --help`"),
        (["--context", "0"], "`--context 0` must be from 1 to 262,144", "`localdiff bench step --help`"),
        (["--context", "300000"], "`--context 300000` must be from 1 to 262,144", "`localdiff bench step --help`"),
        (["--layers", "5"], "`--layers 5` must be from 6 to 30", "6 is the smallest number with a layer of"),
        (["--layers", "31"], "`--layers 31` must be from 6 to 30", "6 is the smallest"),
        (["-m", "demo", "--layers", "6"], "`-m` and `--layers` exclude each other", "`--layers` is about random"),
        (["-m", "demo", "--recipe", "int8"], "`-m` and `--recipe` exclude each other", "`--recipe` is about random"),
        (["--revision", "v2"], "`--revision` needs a model, and none is named", "`-m` names one"),
        (["-m", "demo", "--random-weights"], "`-m` and `--random-weights` exclude each other", "`--random-weights`"),
        (["--recipe", "3bit"], "there is no recipe `3bit`", "the recipes are 4bit,"),
        (["--dtype", "fp16"], "`--dtype fp16` cannot hold this model", "use bf16"),
        (["--dtype", "int3"], "`--dtype int3` must be one of auto, bf16, fp32", "`localdiff bench step --help`"),
        (["--device", "tpu"], "`--device tpu` must be auto", "`localdiff bench step --help`"),
        (["--steps", "many"], "`--steps many` must be a whole number", "`localdiff bench step --help`"),
        (["--layers", "6.5"], "`--layers 6.5` must be a whole number", "`localdiff bench step --help`"),
        (["-m", ""], "`-m` is empty", "leave it out to measure random weights"),
        (["--no-such"], "no such option `--no-such`", "`localdiff bench step --help`"),
    ],
)
def test_what_was_mistyped(cli: Cli, arguments: list[str], error: str, hint: str) -> None:
    result = cli("bench", "step", *arguments)
    lines = result.stderr.splitlines()
    assert (result.code, result.stdout) == (2, "")
    assert lines[0].startswith(f"error: {error}")
    assert lines[1].startswith(f"hint: {hint}")
    assert len(lines) == 2


def test_a_request_speaks_of_arguments_as_in_python() -> None:
    with pytest.raises(ArgumentError, match="^steps=0 must be from 1 to 1,000$"):
        StepRequest(steps=0)


def test_a_model_that_is_not_there(cli: Cli) -> None:
    result = cli("bench", "step", "-m", "./nowhere", "--offline")
    assert result.code == 3
    assert result.stderr.startswith("error: ")


def test_bench_alone_says_where_to_look(cli: Cli) -> None:
    result = cli("bench")
    assert (result.code, result.stderr.splitlines()[-1]) == (2, "hint: `localdiff bench --help` shows what it takes")
    shown = cli("bench", "--help").stdout
    assert re.findall(r"^\s*(step|quality) +\S", shown, re.MULTILINE) == ["step", "quality"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[StepRequest]:
    """Requests that would have been measured; each is answered by the same report."""
    requests: list[StepRequest] = []

    def measure(request: StepRequest, progress: Callable[[str], None], _confirm: object) -> Report:
        progress("measuring")
        requests.append(request)
        return report()

    monkeypatch.setattr(command, "measure", measure)
    return requests


def test_a_terminal_shows_the_table_alone(cli: Cli, asked: list[StepRequest]) -> None:
    shown = cli("bench", "step", "--device", "cpu", terminals="stdout").stdout
    assert "random weights in the shapes of google/diffusiongemma-26B-A4B-it" in shown
    assert "{" not in shown
    assert "{" in cli("bench", "step", "--device", "cpu", "--json", terminals="stdout").stdout


def test_a_table_and_a_line_of_json_last(cli: Cli, asked: list[StepRequest]) -> None:
    result = cli("bench", "step", "--context", "99", "--steps", "4", "--layers", "8", "--device", "cpu")
    assert result.code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("random weights in the shapes of google/diffusiongemma-26B-A4B-it")
    assert lines[-2] == ""
    assert json.loads(lines[-1])["bench"] == "step"
    assert asked == [StepRequest(context=99, steps=4, layers=8, choice=ModelChoice(device="cpu"))]


def test_settings_hold_until_something_else_is_typed(
    cli: Cli, asked: list[StepRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_DTYPE", "fp32")
    monkeypatch.setenv("LOCALDIFF_DEVICE", "cpu")
    monkeypatch.setenv("LOCALDIFF_CONTEXT", "77")
    assert cli("bench", "step", "--json").code == 0
    assert cli("bench", "step", "--json", "--dtype", "bf16").code == 0
    assert asked == [
        StepRequest(json=True, choice=ModelChoice(device="cpu", dtype="fp32")),
        StepRequest(json=True, choice=ModelChoice(device="cpu", dtype="bf16")),
    ], "`context` is that of an answer"
    monkeypatch.setenv("LOCALDIFF_DTYPE", "fp16")
    result = cli("bench", "step", "--json")
    assert result.code == 2
    assert "LOCALDIFF_DTYPE=fp16 cannot hold this model" in result.stderr


def test_json_alone(cli: Cli, asked: list[StepRequest]) -> None:
    result = cli("bench", "step", "--json")
    assert len(result.stdout.splitlines()) == 1
    assert json.loads(result.stdout)["context"] == 16
    assert asked == [StepRequest(json=True)]


def test_progress_is_shown_on_a_terminal_and_taken_away(
    cli: Cli, asked: list[StepRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    result = cli("bench", "step", terminals="stderr")
    assert "measuring" in result.stderr
    assert result.stderr.endswith("\r")
    assert cli("bench", "step", "-q", terminals="stderr").stderr == ""


def test_progress_is_lines_in_a_log(cli: Cli, asked: list[StepRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MIN_SECONDS", 0.0)
    assert cli("bench", "step").stderr == "measuring\n"
    assert cli("bench", "step", "-q").stderr == ""


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([IMPORTING], ""),
        (
            [IMPORTING, "step 9 of 21, 4.5 s each, 1m24s left"],
            "Stopped at: step 9 of 21, 4.5 s each, 1m24s left. Figures come only at the end.\n",
        ),
    ],
)
def test_a_stop_says_how_far_the_measurement_was(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, told: list[str], said: str
) -> None:
    def measure(_request: StepRequest, progress: Callable[[str], None], _confirm: object) -> Report:
        for text in told:
            progress(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "measure", measure)
    result = cli("bench", "step")
    assert (result.code, result.stdout, result.stderr) == (130, "", said)
    assert cli("bench", "step", "-q").stderr == ""
