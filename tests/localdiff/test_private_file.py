"""Files for their owner alone, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localdiff.private_file import write_private


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


def test_what_a_killed_process_left_behind_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / f".kept.{os.getpid()}.partial").write_bytes(b"half")
    write_private(tmp_path / "kept", b"whole")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("kept", b"whole")]
