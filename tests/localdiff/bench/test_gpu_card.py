"""The card, versions and commit that figures are kept under, with stand-ins for the driver."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench import gpu_card

CARD = b"NVIDIA H100 80GB HBM3"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    gpu_card.card.cache_clear()
    yield
    gpu_card.card.cache_clear()


class Driver:
    """A stand-in for the driver's library, which knows one card."""

    def __init__(self, _file: str) -> None:
        """Is always found."""

    def cuInit(self, _: int) -> int:
        return 0

    def cuDeviceGet(self, device: Any, place: int) -> int:
        device._obj.value = 7 + place
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, device: Any) -> int:
        assert device.value == 7 and size > len(CARD)
        buffer.value = CARD
        return 0


def test_it_is_the_card_and_what_compiles_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Driver)
    found = gpu_card.card()
    assert found["gpu"] == CARD.decode() and found["torch"] == torch.__version__


def test_without_a_card_there_are_versions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Driver)
    monkeypatch.setattr(Driver, "cuInit", lambda *_: 100)
    assert "gpu" not in gpu_card.card() and "torch" in gpu_card.card()


def test_figures_are_those_of_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An updated clone is measured anew; without history, or without git, there is no commit."""

    def git(*words: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(gpu_card, "_ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert gpu_card._commit() is None
    git("init")
    (tmp_path / "code").write_text("one")
    git("add", "code")
    git("commit", "-m", "a commit")
    commit = gpu_card._commit()
    assert commit is not None and len(commit) == 12
    (tmp_path / "results").write_text("of no matter")
    assert gpu_card._commit() == commit
    (tmp_path / "code").write_text("two")
    assert gpu_card._commit() == f"{commit}, changed"
    monkeypatch.setenv("PATH", "")
    assert gpu_card._commit() is None


def test_it_takes_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context would stay on the card while the process waits for the processes that it measures."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: pytest.fail("torch takes a context"))
    assert "torch" in gpu_card.card()
