"""A source model, the place of the result, and helpers that damage and check results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.weights import write_small_text, write_small_weights
from tests.screens.processes import Result

NAME = "small-4bit"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_small_text(write_small_weights(tmp_path / "small"))


@pytest.fixture
def output(home: Path) -> Path:
    return home / "models" / NAME


def flip(path: Path, position: int) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 8
    path.write_bytes(content)


def refused(result: Result, code: int, *words: str) -> None:
    """The command has ended with this code, without a result, and has said these words."""
    assert (result.code, result.stdout) == (code, "")
    assert all(word in result.stderr for word in words), result.stderr
