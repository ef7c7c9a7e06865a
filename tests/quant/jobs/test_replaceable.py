"""What a job may delete or replace is told by names."""

from __future__ import annotations

from pathlib import Path

import pytest

from quant.errors import OutputError
from quant.jobs.replaceable import is_occupied, require_deletable, require_free
from quant.names import MANIFEST_FILE, NOTE, PARTIAL, SCRATCH

SHARD = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    "name", [SHARD, SHARD + NOTE, SHARD + PARTIAL, "config.json" + PARTIAL, ".DS_Store", "Thumbs.db", "desktop.ini"]
)
def test_what_jobs_and_desktops_write_may_be_deleted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    require_deletable(tmp_path, ())  # raises otherwise, as the next test shows


@pytest.mark.parametrize("name", ["notes.txt", "note" + NOTE, "tokenizer.json"])
def test_nothing_else_may_be_deleted(tmp_path: Path, name: str) -> None:
    (tmp_path / SHARD).touch()
    (tmp_path / name).touch()
    with pytest.raises(OutputError, match=f"`{tmp_path / name}` was not written by"):
        require_deletable(tmp_path, ("config.json",))


def test_of_folders_only_that_of_downloads_may_be_deleted(tmp_path: Path) -> None:
    """As of a job that was stopped while its output was deleted: what is left does not say whose it is."""
    (tmp_path / SCRATCH).mkdir()
    (tmp_path / "config.json").touch()
    require_deletable(tmp_path, ("config.json",))
    (tmp_path / SHARD).mkdir()
    with pytest.raises(OutputError, match=f"`{tmp_path / SHARD}` was not written by"):
        require_deletable(tmp_path, ("config.json",))


def test_a_relative_path_is_in_a_model_if_the_working_directory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / MANIFEST_FILE).touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    with pytest.raises(OutputError, match="`new` is inside a quantized model"):
        require_free(Path("new"), force=False)


def test_what_else_is_in_a_model_matters_where_the_model_is_replaced(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).touch()
    (tmp_path / "mine").mkdir()
    require_free(tmp_path, force=False)
    with pytest.raises(OutputError, match="`mine` in "):
        require_free(tmp_path, force=True)


def test_files_of_a_damaged_model_are_told_by_their_names_once_those_are_known(tmp_path: Path) -> None:
    for name in (MANIFEST_FILE, SHARD, "config.json" + PARTIAL, "Thumbs.db"):
        (tmp_path / name).touch()
    require_free(tmp_path, force=True, names=("config.json",))
    (tmp_path / "notes.txt").touch()
    require_free(tmp_path, force=True, names=None)
    with pytest.raises(OutputError, match="`notes.txt` in "):
        require_free(tmp_path, force=True, names=("config.json",))


def test_a_link_that_leads_nowhere_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert is_occupied(tmp_path / "link") and not is_occupied(tmp_path / "nothing")
