"""Commands that are loaded when they are called: known by the right words, and by nothing else until then."""

from __future__ import annotations

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
def test_every_one_can_be_called(cli: Cli, name: str) -> None:
    result = cli(name, "--help")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: localdiff {name} ")


def test_a_mistyped_name_is_understood(cli: Cli) -> None:
    assert "did you mean 'doctor'?" in cli("docter").stderr


COMMANDS = sorted({module for module, _ in COMMANDS_BY_NAME.values()})
HEAVY = ("torch", "pydantic", "rich.console", "huggingface_hub", "prompt_toolkit", "tomlkit", "localdiff.engine")


def loaded_by(*arguments: str, watched: Sequence[str] = (*HEAVY, *COMMANDS)) -> list[str]:
    """The modules of commands and the heavy packages that a command loads in a process of its own."""
    program = (
        f"import sys\nfrom localdiff.cli import main\ntry:\n    main({list(arguments)!r})\nexcept SystemExit:\n"
        f"    found = [name for name in sys.modules if name in {tuple(watched)}]\n"
        "    print(' '.join(sorted(found)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), cwd=ROOT, capture_output=True, text=True)
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_no_command_is_loaded_where_none_is_called(arguments: list[str]) -> None:
    assert loaded_by(*arguments, watched=(*HEAVY, *COMMANDS, "localdiff.model_store")) == []


@pytest.mark.parametrize("name", COMMANDS_BY_NAME)
def test_the_help_of_one_loads_neither_the_others_nor_what_they_compute_with(name: str) -> None:
    assert loaded_by(name, "--help") == [COMMANDS_BY_NAME[name][0]]


def test_a_mistyped_option_is_found_before_anything_is_loaded() -> None:
    assert "torch" not in loaded_by("run", "--no-such-option")
