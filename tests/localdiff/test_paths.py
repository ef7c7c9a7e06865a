"""Where files are kept, for every way in which a user may set it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.errors import UsageError
from tests.screens.processes import ROOT


@pytest.mark.parametrize(
    ("env", "models", "config", "state"),
    [
        (
            {"HOME": "/h"},
            "/h/.local/share/localdiff/models",
            "/h/.config/localdiff",
            "/h/.local/state/localdiff",
        ),
        (
            {"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"},
            "/d/localdiff/models",
            "/c/localdiff",
            "/s/localdiff",
        ),
        ({"HOME": "/h", "XDG_DATA_HOME": "relative"}, "/h/.local/share/localdiff/models", "/h/.config/localdiff", None),
        ({"HOME": "/h", "XDG_DATA_HOME": "/d", "LOCALDIFF_HOME": "/l"}, "/l/models", "/l", "/l"),
    ],
)
def test_own_files(env: dict[str, str], models: str, config: str, state: str | None) -> None:
    assert paths.models_dir(env) == Path(models)
    assert paths.config_dir(env) == Path(config)
    if state is not None:
        assert paths.state_dir(env) == Path(state)


@pytest.mark.parametrize(("platform", "beginning"), [("linux", "`/`"), ("win32", "a drive, such as `C:\\`,")])
def test_a_home_is_a_full_path(platform: str, beginning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths.sys, "platform", platform)
    for where in (paths.models_dir, paths.config_dir, paths.state_dir):
        with pytest.raises(UsageError, match="`LOCALDIFF_HOME=here` is not a full path") as caught:
            where({"HOME": "/h", "USERPROFILE": "/h", "LOCALDIFF_HOME": "here"})
        assert caught.value.hint == f"it begins with {beginning} or `~`"


def test_nobody_knows_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user id without a name, when nothing sets `HOME`."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    for where in (paths.models_dir, paths.config_dir, paths.state_dir, paths.hub_cache_dir):
        with pytest.raises(UsageError, match="`HOME` is not set, and the system knows no home"):
            where({})


def test_names_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "loop").symlink_to("loop")
    assert paths.is_same(tmp_path / "a", tmp_path / "link")
    assert paths.is_same(tmp_path / "new", f"{tmp_path}/x/../new")
    assert not paths.is_same(tmp_path / "a", tmp_path / "new")
    assert paths.is_same(tmp_path / "loop", tmp_path / "loop")
    assert not paths.is_same(tmp_path / "loop", tmp_path / "new")


def test_what_is_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "nowhere").symlink_to("away")
    (tmp_path / "loop").symlink_to("loop")
    for free in ("folder", "new", "folder/new/er", "link", "link/new", ""):
        assert paths.obstacle(tmp_path / free) is None
    for taken in ("file", "nowhere", "loop"):
        for below in ("", "models", "a/b"):
            assert paths.obstacle(tmp_path / taken / below) == tmp_path / taken


def test_the_cache_of_the_hub_is_where_its_library_has_it() -> None:
    places = (
        {},
        {"XDG_CACHE_HOME": "/x"},
        {"XDG_CACHE_HOME": "relative"},
        {"XDG_CACHE_HOME": "/x", "HF_HOME": "/f"},
        {"HF_HOME": "~/f"},
        {"HF_HOME": "$HOME/f"},
        {"HF_HOME": "/f", "HF_HUB_CACHE": "/c"},
        {"HF_HOME": "/f", "HUGGINGFACE_HUB_CACHE": "/older"},
        {"HUGGINGFACE_HUB_CACHE": "~/older", "HF_HUB_CACHE": "${HOME}/c"},
        {"LOCALDIFF_HOME": "/l"},
    )
    script = (
        "import importlib, json, os, sys\n"
        "from huggingface_hub import constants\n"
        "for place in json.loads(sys.argv[1]):\n"
        "    os.environ.clear()\n"
        "    os.environ.update({'HOME': '/h', **place})\n"
        "    from localdiff import paths\n"
        "    print(importlib.reload(constants).HF_HUB_CACHE, paths.hub_cache_dir(), sep='\\t')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, json.dumps(places)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    theirs, ours = zip(*(line.split("\t") for line in run.stdout.splitlines()), strict=True)
    assert len(theirs) == len(places)
    assert ours == theirs
    assert theirs[-1] == "/h/.cache/huggingface/hub", "weights of the Hub are never moved"
