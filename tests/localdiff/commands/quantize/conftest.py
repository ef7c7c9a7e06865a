"""A model, and where the result is put."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.weights import write_small_text, write_small_weights


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_small_text(write_small_weights(tmp_path / "small"))


@pytest.fixture
def output(home: Path) -> Path:
    return home / "models" / "small-4bit"
