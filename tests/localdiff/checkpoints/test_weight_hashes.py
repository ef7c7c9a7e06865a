"""Which weight files of a directory are read again, and which need not be."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.checkpoints import weight_hashes
from localdiff.checkpoints.weight_hashes import file_state, hashes, record
from quant.errors import SourceError
from quant.hashing import file_sha256

NAMES = ("a", "b")


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the files that were read, with a home of the test's own; even new files are recorded at once."""
    names: list[str] = []

    def watched(path: Path, progress: Callable[[int], None]) -> str:
        names.append(path.name)
        return file_sha256(path, progress)

    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(weight_hashes, "file_sha256", watched)
    monkeypatch.setattr(weight_hashes, "_SETTLED_NS", 0)
    return names


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "weights"
    directory.mkdir()
    for name in NAMES:
        (directory / name).write_text(f"weights {name}")
    return directory


def expected(directory: Path) -> dict[str, str]:
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in NAMES}


def test_a_file_that_nobody_touched_is_read_once(directory: Path, read: list[str], tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    link = tmp_path / "link"
    link.symlink_to(directory)
    for place in (directory, directory, link):
        assert hashes(place, NAMES, lambda done, total: shown.append((done, total))) == expected(directory)
    assert read == ["a", "b"]
    assert shown == [(9, 18), (18, 18)]


def test_other_contents_of_the_same_size_and_time_are_read(directory: Path, read: list[str]) -> None:
    hashes(directory, NAMES)
    written = (directory / "a").stat()
    (directory / "a").write_text("WEIGHTS A")
    os.utime(directory / "a", ns=(written.st_atime_ns, written.st_mtime_ns))
    other = directory / "other"
    other.write_text("WEIGHTS B")
    times = (directory / "b").stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(directory / "b")
    assert hashes(directory, NAMES) == expected(directory)
    assert read == ["a", "b", "a", "b"]


def test_what_was_written_a_moment_ago_is_not_recorded(
    directory: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_hashes, "_SETTLED_NS", 3600 * 10**9)
    for _ in range(2):
        assert hashes(directory, NAMES) == expected(directory)
    assert read == ["a", "b", "a", "b"]


def test_what_changed_while_it_was_read_is_not_recorded(directory: Path, read: list[str]) -> None:
    before = file_state(directory / "a")
    (directory / "a").write_text("longer than before")
    record(directory, {"a": (before, "0" * 64), "gone": (before, "0" * 64)})
    assert hashes(directory, NAMES) == expected(directory)


@pytest.mark.parametrize("content", ["", "[]", '{"files": 1}', '{"files": {"a": 1}}', '{"files": {"a": [["x"], 0]}}'])
def test_a_record_that_cannot_be_read_counts_as_none(directory: Path, read: list[str], content: str) -> None:
    hashes(directory, NAMES)
    (file,) = (paths.state_dir() / "sources").iterdir()
    file.write_text(content)
    assert hashes(directory, NAMES) == expected(directory)
    assert read == ["a", "b", "a", "b"]


def test_the_record_of_a_directory_that_is_gone_is_deleted(directory: Path, tmp_path: Path) -> None:
    hashes(directory, NAMES)
    directory.rename(tmp_path / "elsewhere")
    hashes(tmp_path / "elsewhere", NAMES)
    assert len(list((paths.state_dir() / "sources").iterdir())) == 1


def test_what_cannot_be_recorded_is_read_once_a_run(directory: Path, read: list[str], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    for _ in range(3):
        assert hashes(directory, NAMES) == expected(directory)
    assert read == ["a", "b"]
    (directory / "b").write_text("others")
    assert hashes(directory, NAMES) == expected(directory)
    assert read == ["a", "b", "b"]


def test_a_file_that_cannot_be_read_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path, progress: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(weight_hashes, "file_sha256", fails)
    with pytest.raises(SourceError, match=re.escape(f"`{directory / 'a'}` cannot be read (Input/output error)")):
        hashes(directory, NAMES)
