"""Targets of the Makefile that take what somebody types."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def make(*arguments: str, cwd: Path) -> str:
    """What make would do."""
    # Where make itself runs the tests, another one says that it is another one, and in which folder.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "--dry-run", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("prompt", ["Spell $HOME moon", "It's $5; $(HOME) or `date`?", '"quoted"', "-x"])
def test_a_prompt_is_asked_as_it_is_typed(prompt: str) -> None:
    out = make("run", f"PROMPT={prompt}", cwd=ROOT)
    assert shlex.split(out.splitlines()[-1])[1:] == ["run", "--model", "demo", "--", prompt]


@pytest.mark.parametrize("folder", ["clone", "it's a clone"])
def test_the_environment_of_a_clone_that_was_moved_is_made_anew(tmp_path: Path, folder: str) -> None:
    clone = tmp_path / folder
    (clone / ".venv").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    stamp = clone / ".venv" / ".installed"
    stamp.write_text(str(clone))
    assert "-m venv" not in make("setup", cwd=clone)
    stamp.write_text(str(tmp_path / "before"))
    assert "-m venv --clear .venv" in make("setup", cwd=clone)
