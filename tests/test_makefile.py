"""Targets of the Makefile that take what a user types."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def make(*arguments: str, cwd: Path, dry: bool = True, stderr: int = subprocess.PIPE) -> str:
    """What make would do, or what it prints when it does it."""
    # Run by another make, make would report its level and folder.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", *(["--dry-run"] if dry else []), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True
    ).stdout


@pytest.mark.parametrize("prompt", ["Spell $HOME moon", "It's $5; $(HOME) or `date`?", '"quoted"', "-x"])
def test_a_prompt_is_asked_as_it_is_typed(prompt: str) -> None:
    out = make("run", f"PROMPT={prompt}", cwd=ROOT)
    assert shlex.split(out.splitlines()[-1])[1:] == ["run", "--model", "demo", "--", prompt]


def test_a_first_run_ends_with_what_can_be_typed_next(tmp_path: Path) -> None:
    clone = clone_in(tmp_path / "clone")
    (clone / ".venv" / ".installed").write_text(str(clone))
    for name in ("localdiff", "pip", "python"):
        (clone / ".venv" / "bin" / name).write_text("#!/bin/sh\necho An answer.\n")
        (clone / ".venv" / "bin" / name).chmod(0o755)
    told = make("run", cwd=clone, dry=False, stderr=subprocess.STDOUT)
    assert told.startswith("An answer.\n\nnext: make run PROMPT=") and ".venv/bin/localdiff chat -m demo\n" in told
    assert make("run", "PROMPT=hi", cwd=clone, dry=False, stderr=subprocess.STDOUT) == "An answer.\n"


def clone_in(folder: Path) -> Path:
    """A folder with what `make setup` reads, and an empty environment."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.parametrize("folder", ["clone", "it's a clone"])
def test_the_environment_of_a_clone_that_was_moved_is_made_anew(tmp_path: Path, folder: str) -> None:
    clone = clone_in(tmp_path / folder)
    stamp = clone / ".venv" / ".installed"
    stamp.write_text(str(clone))
    assert "-m venv" not in make("setup", cwd=clone)
    stamp.write_text(str(tmp_path / "before"))
    assert "-m venv --clear .venv" in make("setup", cwd=clone)


@pytest.mark.parametrize("has_pip", [True, False])
def test_an_environment_without_pip_gets_it(tmp_path: Path, has_pip: bool) -> None:
    """Debian's `python3 -m venv` fails without the package `python3-venv`, and leaves such an environment behind."""
    clone = clone_in(tmp_path / "clone")
    python = clone / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$*" >> calls\n[ "$*" != "-c import pip" ] || {str(has_pip).lower()}\n')
    python.chmod(0o755)
    make("setup", cwd=clone, dry=False)
    calls = (clone / "calls").read_text().splitlines()
    assert calls[:-1] == ["-c import pip", *([] if has_pip else ["-m ensurepip"])]
    assert calls[-1].startswith("-m pip install")
