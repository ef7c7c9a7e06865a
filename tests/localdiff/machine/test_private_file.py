"""Files for their owner alone, written whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from localdiff.machine.private_file import make_private_folder, write_private


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "kept"
    write_private(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("kept", b"old")]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_folders_on_the_way_to_a_private_one_are_private_too_and_those_of_others_stay_as_they_are(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        make_private_folder(tmp_path / "a" / "b" / "c")
        make_private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in (".", "a", "a/b", "a/b/c")]
    assert modes == [0o755, 0o700, 0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "file" / "b" / "c")


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    name = "字" * 85  # 255 bytes
    write_private(tmp_path / name, b"whole")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(name, b"whole")]
