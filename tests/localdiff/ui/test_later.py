"""Commands that are loaded when they are called: known by the right words, and by nothing else until then."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from localdiff.cli import LATER, app
from localdiff.ui.help import summary
from localdiff.ui.later import loaded
from tests.processes import ROOT, Cli, environment

GROUP: Any = typer.main.get_command(app)


@pytest.mark.parametrize("name", LATER)
def test_the_summary_is_that_of_the_command(name: str) -> None:
    assert LATER[name][1] == summary(loaded(GROUP.commands[name])), "copy it into LATER of localdiff/cli.py"


@pytest.mark.parametrize("name", LATER)
def test_every_one_can_be_called(cli: Cli, name: str) -> None:
    result = cli(name, "--help")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: localdiff {name} ")


def test_a_mistyped_name_is_understood(cli: Cli) -> None:
    assert "did you mean 'doctor'?" in cli("docter").stderr


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["--help"], []),
        (["--version"], []),
        (["no-such-command"], []),
        (["run", "--help"], ["cli_run"]),
        (["run", "--no-such-option"], ["cli_run"]),
        (["doctor", "--help"], ["cli_setup"]),
    ],
)
def test_nothing_is_loaded_that_is_not_called(arguments: list[str], module: list[str]) -> None:
    program = (
        f"import sys\nfrom localdiff.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n"
        "    heavy = ('torch', 'pydantic', 'rich.console', 'huggingface_hub', 'prompt_toolkit')\n"
        "    found = [name for name in sys.modules if name in heavy or name.startswith('localdiff.cli_')]\n"
        "    print(found, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == str([f"localdiff.{name}" for name in module])
