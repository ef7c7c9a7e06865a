"""Commands that are loaded only when they are called: until then only their summaries are known."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import typer

from localdiff.cli import COMMANDS_BY_NAME, app
from localdiff.cli.help import first_sentence
from localdiff.cli.lazy import loaded
from tests.screens.processes import ROOT, Cli, environment

GROUP: Any = typer.main.get_command(app)


@pytest.mark.parametrize("name", COMMANDS_BY_NAME)
def test_the_summary_is_that_of_the_command(name: str) -> None:
    assert COMMANDS_BY_NAME[name][1] == first_sentence(loaded(GROUP.commands[name]).help), (
        "copy it into COMMANDS_BY_NAME of localdiff/cli/__init__.py"
    )


@pytest.mark.parametrize("name", COMMANDS_BY_NAME)
def test_every_one_has_a_help_page(cli: Cli, name: str) -> None:
    result = cli(name, "--help")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: localdiff {name} ")


def test_a_mistyped_name_is_understood(cli: Cli) -> None:
    assert "did you mean `doctor`?" in cli("docter").stderr


COMMANDS = sorted({module for module, _ in COMMANDS_BY_NAME.values()})
HEAVY = ("torch", "pydantic", "rich.console", "huggingface_hub", "prompt_toolkit", "tomlkit", "localdiff.engine")


PROGRAM = """
import json, sys
from localdiff.cli import main
runs, watched, forgotten = map(json.loads, sys.argv[1:])
found = []
for arguments in runs:
    for name in forgotten:
        sys.modules.pop(name, None)
    try:
        main(arguments)
    except SystemExit as left:
        found.append((left.code, sorted(set(watched) & set(sys.modules))))
print(json.dumps(found), file=sys.stderr)
"""


def loaded_by(
    runs: Sequence[Sequence[str]], watched: Sequence[str] = (*HEAVY, *COMMANDS)
) -> list[tuple[int, list[str]]]:
    """The exit code of each run, and what of `watched` is loaded after it; all runs share one new process.

    Modules of commands are forgotten before each run; heavy modules stay loaded for the runs that follow.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(json.dumps, (runs, watched, COMMANDS))],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return [(code, names) for code, names in json.loads(done.stderr.splitlines()[-1])]


def test_no_command_is_loaded_where_none_is_called() -> None:
    runs = [["--help"], ["--version"], ["no-such-command"]]
    found = loaded_by(runs, watched=(*HEAVY, *COMMANDS, "localdiff.checkpoints.model_store"))
    assert found == [(0, []), (0, []), (2, [])]


def test_the_help_of_one_loads_neither_the_others_nor_what_they_compute_with() -> None:
    found = loaded_by([[name, "--help"] for name in COMMANDS_BY_NAME])
    assert found == [(0, [module]) for module, _ in COMMANDS_BY_NAME.values()]


COMPUTE_NOTHING = [
    (["run", "--help"], 0),
    (["run", "--no-such-option"], 2),
    (["run", "--steps", "0", "hi"], 2),
    (["run", "-f", "/no/such/file"], 2),
    (["run", "hi"], 3),
    (["run", "-m", "demo", "--device", "tpu", "hi"], 2),
    (["run", "-m", "demo", "--dtype", "fp16", "hi"], 2),
    (["chat", "-m", "demo", "--dtype", "int3"], 2),
    (["bench", "step", "--dtype", "int3"], 2),
    (["run", "-m", "nothere", "hi"], 3),
    (["run", "-m", "demo", "--revision", "x", "hi"], 2),
    (["chat", "-m", "demo", "--adapter", "nothere"], 3),
    (["bench", "step", "-m", "nothere"], 3),
    (["trace", "check", "--rerun", "example", "-m", "nothere"], 3),
    (["quantize", "demo", "--recipe", "3bit"], 2),
    (["quantize", "demo", "--device", "tpu"], 2),
    (["quantize", "demo", "--verify-only", "--force"], 2),
    (["quantize", "nothere"], 3),
    (["bench", "step", "--recipe", "3bit"], 2),
    (["bench", "step", "--device", "tpu"], 2),
]


def test_what_computes_nothing_loads_nothing() -> None:
    runs = [arguments for arguments, _ in COMPUTE_NOTHING]
    found = loaded_by(runs, watched=("torch", "transformers", "huggingface_hub", "tokenizers"))
    for arguments, expected, ended in zip(runs, COMPUTE_NOTHING, found, strict=True):
        assert ended == (expected[1], []), arguments
