"""One job per output at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localdiff.errors import ResourceError, UsageError
from localdiff.machine import output_lock as lock_module
from localdiff.machine.output_lock import is_locked, lock_path, locked
from tests.screens.processes import ROOT

HOLD = """
import sys
from pathlib import Path
from localdiff.machine.output_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Answer every lock with this error."""

    def flock(_handle: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)


def test_a_second_job_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    output = tmp_path / "models" / "x"
    with locked(output):
        assert is_locked(output)
        with pytest.raises(UsageError, match="another process is working"), locked(output):
            pass
        with locked(tmp_path / "models" / "y"):
            pass
    assert not is_locked(output)
    assert not lock_path(output).exists()
    with locked(output):
        pass


def test_somebody_who_looks_for_a_job_stops_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_locked` holds the lock for a moment, in which a job may begin."""
    lock, tries = lock_module._lock, [False, False]
    monkeypatch.setattr(lock_module, "_lock", lambda *arguments: tries.pop() if tries else lock(*arguments))
    with locked(tmp_path / "x") as is_held:
        assert is_held


def test_of_a_lock_that_cannot_be_opened_nothing_is_known(tmp_path: Path) -> None:
    """For example the lock of another user that nobody else may read; a list of models must go on."""
    lock_path(tmp_path / "x").symlink_to(lock_path(tmp_path / "x"))
    assert not is_locked(tmp_path / "x")


def test_folders_that_were_made_for_a_lock_alone_are_gone(tmp_path: Path) -> None:
    output = tmp_path / "a" / "b" / "x"
    with locked(output):
        assert lock_path(output).exists()
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    with locked(output):
        (tmp_path / "a" / "b" / "kept").touch()
    assert (tmp_path / "a" / "b" / "kept").exists()
    with locked(tmp_path / "x"):
        pass
    assert tmp_path.exists()


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    output = tmp_path / "x"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    assert is_locked(output)
    holder.kill()
    holder.communicate()
    assert lock_path(output).exists()
    assert not is_locked(output)
    with locked(output):
        pass
    assert not lock_path(output).exists()


def test_a_lock_on_a_file_that_is_gone_by_then_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, lock, deleted = tmp_path / "x", lock_module._lock, []

    def deleted_by_its_last_holder(handle: int, path: Path) -> bool | None:
        if not deleted:
            lock_path(output).unlink()
            deleted.append(handle)
        return lock(handle, path)

    monkeypatch.setattr(lock_module, "_lock", deleted_by_its_last_holder)
    with locked(output):
        monkeypatch.undo()
        assert deleted and is_locked(output)


@pytest.mark.skipif(sys.platform == "win32", reason="`flock`")
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF])
def test_a_file_system_without_locks_is_used_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    output = tmp_path / "x"
    with locked(output) as is_held:
        assert is_held
    refuse_locks(monkeypatch, number)
    with locked(output) as is_held:
        assert not is_held
        assert lock_path(output).exists()
        assert not is_locked(output)
    assert not lock_path(output).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="`flock`")
def test_what_is_no_answer_about_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "x"
    with locked(output):
        refuse_locks(monkeypatch, errno.EIO)
        with pytest.raises(ResourceError, match="cannot be locked"), locked(output):
            pass
        with pytest.raises(ResourceError, match="cannot be locked"):
            is_locked(output)


def test_a_disk_without_room_for_a_lock_is_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lock_module.os, "open", refuse)
    with pytest.raises(ResourceError, match="cannot be written: No space left"), locked(tmp_path / "a" / "x"):
        pass
    assert not (tmp_path / "a").exists()


def test_a_folder_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written: it is not a folder"), locked(tmp_path / "file" / "x"):
        pass
