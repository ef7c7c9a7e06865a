"""Where a test keeps its files, how full its disks are, and the Hub's client, pointed at a server of the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest
from huggingface_hub import constants

from localdiff.hub import problems
from tests.fakes.hub import Hub

UseHub: TypeAlias = Callable[[Hub | str], Path]
SetFree: TypeAlias = Callable[[int], None]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The test's own directory as the home for everything the program keeps."""
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def set_free(monkeypatch: pytest.MonkeyPatch) -> SetFree:
    """Makes every disk report that many free bytes."""
    return lambda nbytes: monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=nbytes))


@pytest.fixture
def use_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> UseHub:
    """Points the client, and every process started from here, at a server; returns the client's cache directory."""
    return partial(point_at, monkeypatch, tmp_path)


def point_at(monkeypatch: pytest.MonkeyPatch, directory: Path, server: Hub | str) -> Path:
    """Does the work of `use_hub`, with the cache in a directory.

    For this process the server is the Hub itself; processes started from here take it for a mirror.
    """
    url = server if isinstance(server, str) else server.url
    cache = directory / "hf" / "hub"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(problems, "PUBLIC_ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache.with_name("token")))
    for name, value in {
        "HF_ENDPOINT": url,
        "HF_HOME": str(directory / "hf"),
        "NO_PROXY": "127.0.0.1,localhost",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return cache
