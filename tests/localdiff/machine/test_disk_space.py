"""What must fit on which disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from localdiff.machine.disk_space import Mount, freed_by, mounts, shortage


def test_directories_on_one_disk_add_up(tmp_path: Path) -> None:
    (mount,) = mounts([(tmp_path / "a" / "b", 10), (tmp_path, 5), (tmp_path / "c", 0)])
    assert mount.needed == 15
    assert mount.free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
    assert os.path.ismount(mount.path)


def test_two_disks_are_two() -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == Path("/tmp").stat().st_dev:
        pytest.skip("needs two file systems")
    found = {mount.path: mount.needed for mount in mounts([(shared / "x", 1), (Path("/tmp/x"), 2)])}
    assert found[shared] == 1
    assert sum(found.values()) == 3


def test_short_means_less_free_than_needed() -> None:
    assert Mount(path=Path("/"), needed=11, free=10).short
    assert not Mount(path=Path("/"), needed=10, free=10).short


def test_a_shortage_names_the_disk_and_the_numbers() -> None:
    fits = Mount(path=Path("/a"), needed=1, free=2)
    short = Mount(path=Path("/home"), needed=69_600_000_000, free=41_200_000_000)
    assert shortage([fits]) is None
    assert shortage([fits, short]) == "not enough disk space in /home: needs 69.6 GB, 41.2 GB free"
    assert shortage([short, replace(short, path=Path("/b"))]) == (
        "not enough disk space in /home: needs 69.6 GB, 41.2 GB free; in /b: needs 69.6 GB, 41.2 GB free"
    )


def test_what_is_deleted_frees_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * 100_001)
    (tmp_path / "link").symlink_to(tmp_path / "inner" / "file")
    assert freed_by(tmp_path / "inner" / "file") == freed_by(tmp_path) == 100_001
    assert freed_by(tmp_path / "none") == 0


@pytest.mark.skipif(os.name == "nt", reason="files have no holes there")
def test_holes_of_a_file_that_was_being_written_free_nothing(tmp_path: Path) -> None:
    with (tmp_path / "shard").open("wb") as file:
        file.seek(10_000_000)
        file.write(b"x")
    assert freed_by(tmp_path) < 1_000_000
