"""What disks may answer: full, refused, or that they cannot sync directories."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from quant.errors import OutputError, SpaceError
from quant.files.disk import Disk, write_atomically

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_sentence_that_names_the_file() -> None:
    with FULL.open("wb", buffering=0) as file, pytest.raises(SpaceError, match="/dev/full") as caught:
        Disk().write(file, 0, b"x")
    assert caught.value.exit_code == 4
    assert "same command" in (caught.value.hint or "")


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    class Slow:
        """Takes three bytes at a time, as a pipe or a network disk may."""

        name = "slow"

        def __init__(self, file: BinaryIO) -> None:
            self.file = file

        def seek(self, offset: int) -> int:
            return self.file.seek(offset)

        def write(self, data: memoryview) -> int:
            return self.file.write(data[:3])

    with Disk().create(tmp_path / "a") as file:
        Disk().write(Slow(file), 2, b"0123456789")  # type: ignore[arg-type]
    assert (tmp_path / "a").read_bytes() == b"\0\x000123456789"


@pytest.mark.skipif(os.name != "posix", reason="no directory is kept apart there")
@pytest.mark.parametrize(("code", "is_refused"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_keep_directories_apart_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_refused: bool
) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    if is_refused:
        with pytest.raises(OutputError, match="Input/output error") as caught:
            write_atomically(Disk(), tmp_path / "a", b"x")
        assert caught.value.hint == "look at the disk and its connection"
    else:
        write_atomically(Disk(), tmp_path / "a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_removes_files_directories_links_and_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "directory" / "inner").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    for name in ("directory", "file", "link", "nothing"):
        Disk().remove(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_what_a_disk_refuses_is_a_sentence_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    disk = Disk()
    below = tmp_path / "file" / "below"
    for attempt in (
        lambda: disk.make_directory(below),
        lambda: disk.create(below),
        lambda: disk.rename(tmp_path / "file", below),
        lambda: disk.rename(tmp_path / "nothing", tmp_path / "x"),
    ):
        with pytest.raises(OutputError, match="cannot be written: ") as caught:
            attempt()
        assert caught.value.hint


def test_a_folder_that_is_gone_is_no_matter_of_permissions(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file or directory") as caught:
        Disk().create(tmp_path / "gone" / "a")
    assert caught.value.hint == "its folder was moved or deleted meanwhile: run the same command again"
