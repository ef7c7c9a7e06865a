"""`localdiff bench quality` from the command line, over random models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from localdiff.commands.model_choice import ModelChoice
from localdiff.ui import status
from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import quantize
from tests.screens.processes import Cli

SPEC = replace(QUANTIZABLE, settings={"max_denoising_steps": 6, "eos_token_id": [1]})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random checkpoint, and the same in 4 bits."""
    plain = write_checkpoint(SPEC, tmp_path_factory.mktemp("plain"))
    return plain, quantize(plain, tmp_path_factory.mktemp("made") / "4bit", "4bit-small")


@pytest.fixture
def asked(models: tuple[Path, Path], tmp_path: Path) -> list[str]:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w9 w14 w33\n\nw5 w6\nw44\n")
    options = ["--prompts", str(prompts), "--max-tokens", "8", "--context", "64", "--device", "cpu"]
    return ["bench", "quality", *map(str, models), *options]


def test_the_table_goes_to_stdout_and_the_progress_to_stderr(
    cli: Cli, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    result = cli(*asked, "--seeds", "2", terminals="stderr")
    assert result.code == 0
    head, _, columns, rule, *rows, _, _ = result.stdout.splitlines()
    assert "(4bit-small) against " in head
    assert "(bf16), fp32 on cpu: " in head
    assert "2 seeds a question" in head
    assert [cell.strip() for cell in columns.split("|")[1:4]] == ["", "questions", "steps per block"]
    assert set(rule) <= set("|-:")
    assert [row.split("|")[1].strip() for row in rows] == ["prompts"]
    assert "second model: question 3 of 3 (prompts)" in result.stderr


def test_progress_is_a_line_for_each_stage_in_a_log(
    cli: Cli, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "MIN_SECONDS", 0.0)
    assert cli(*asked, "--seeds", "1").stderr.splitlines() == [
        "loading the first model",
        "first model: question 1 of 3 (prompts)",
        "loading the second model",
        "second model: question 1 of 3 (prompts)",
    ]
    assert cli(*asked, "--seeds", "1", "-q").stderr == ""


def test_one_object_in_place_of_the_table(cli: Cli, asked: list[str]) -> None:
    result = cli(*asked, "--count", "2", "--seeds", "3", "--json", "-q")
    content = json.loads(result.stdout)
    assert content["first"]["recipe"] == "bf16"
    assert content["second"]["recipe"] == "4bit-small"
    (group,) = content["groups"]
    assert (group["group"], group["questions"], group["runs"], group["score"]) == ("prompts", 2, 6, None)
    assert group["divergence"]["mean"] > 0
    assert result.stderr == ""


def test_the_same_measurement_gives_the_same_figures(cli: Cli, asked: list[str]) -> None:
    assert cli(*asked, "--seeds", "1").stdout == cli(*asked, "--seeds", "1").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "`--seeds 0` must be >= 1"),
        (["--seed", str(2**63 - 1)], f"`--seed {2**63}` must be <= {2**63 - 1}"),
        (["--count", "0"], "`--count 0` must be >= 1"),
        (["--skill", "add"], "exclude each other"),
        (["--max-memory", "lots"], "is not an amount of memory"),
        (["--max-tokens", "0"], "`--max-tokens 0` must be >= 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_loaded(
    cli: Cli, asked: list[str], arguments: list[str], message: str
) -> None:
    result = cli(*asked, *arguments)
    assert (result.code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--max-tokens", "0"]])
def test_a_hint_names_the_command(cli: Cli, asked: list[str], arguments: list[str]) -> None:
    assert "hint: `localdiff bench quality --help` says what each option takes\n" in cli(*asked, *arguments).stderr


def test_a_model_against_itself(cli: Cli, models: tuple[Path, Path]) -> None:
    result = cli("bench", "quality", *map(str, models), str(models[0]))
    assert result.code == 2
    assert "a model cannot be compared with itself" in result.stderr


def test_a_name_that_is_no_model_is_found_before_the_first_model_answers(
    cli: Cli, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelChoice, "load", None)
    result = cli("bench", "quality", str(models[0]), "demo-5bit")
    assert result.code == 3
    assert "error: `demo-5bit` is neither `demo`, nor a quantized model" in result.stderr


def test_one_seed_is_one(cli: Cli, asked: list[str]) -> None:
    assert "; 1 seed a question\n" in cli(*asked, "--seeds", "1", "--count", "1").stdout


def test_a_terminal_gets_lines_of_its_width(cli: Cli, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    result = cli(*asked, "--seeds", "1", "--count", "1", terminals="stdout")
    assert "prompts: questions 1, steps per block " in result.stdout
    assert all(len(line) <= 50 or " " not in line for line in result.stdout.splitlines())


def test_a_skill_that_does_not_exist(cli: Cli, models: tuple[Path, Path]) -> None:
    result = cli("bench", "quality", *map(str, models), "--skill", "flying")
    assert result.code == 2
    assert "there is no skill `flying`" in result.stderr


def test_a_model_that_is_not_there(cli: Cli, asked: list[str]) -> None:
    asked[3] = "./nowhere"
    result = cli(*asked, "--seeds", "1")
    assert (result.code, result.stdout) == (3, "")
    assert "no such directory" in result.stderr
