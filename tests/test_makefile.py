"""Targets of the Makefile that take what somebody types."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("prompt", ["Spell $HOME moon", "It's $5; $(HOME) or `date`?", '"quoted"', "-x"])
def test_a_prompt_is_asked_as_it_is_typed(prompt: str) -> None:
    # Where make itself runs the tests, another one says that it is another one, and in which folder.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "--dry-run", "run", f"PROMPT={prompt}"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert shlex.split(done.stdout.splitlines()[-1])[1:] == ["run", "--model", "demo", "--", prompt]
