"""A lock that allows one job at a time per output.

The lock ends with its process, however the process ends. Knows nothing about what it guards. Whoever holds the lock
deletes its file before releasing it, and a lock on a file that has been deleted does not count. Windows deletes no
open file: there the deletion follows the release, unless the next process has the file open already. Some network
file systems have no locks: jobs go on without one there.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localdiff.errors import ResourceError, UsageError

_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF}
"""What a file system without locks answers; over NFS also EBADF, for a file opened read-only."""
_GLANCE, _PAUSE = 0.1, 0.01
"""Seconds: a lock held longer than the first is a job's, not that of `is_locked`, which tries it; between two tries."""


def lock_path(output: Path) -> Path:
    """The lock file of an output."""
    return output.with_name(f".{output.name}.lock")


@contextmanager
def locked(output: Path, *, hint: str = "wait until it ends, or choose another directory") -> Iterator[bool]:
    """Holds the lock of an output until the end of the block; false where its file system has no locks.

    Folders that were made for it are deleted if they are empty in the end.

    Args:
        hint: what to do while another process holds it.

    Raises:
        UsageError: another process is working on it, or the folder is not writable.
        ResourceError: the disk is full, or fails.
    """
    path = lock_path(output)
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        lock = _acquire(path)
        if lock is None:
            raise UsageError(f"another process is working on `{output}`", hint)
        handle, is_held = lock
        try:
            yield is_held
        finally:
            if sys.platform == "win32":
                os.close(handle)
            with suppress(OSError):  # a folder that has become read-only: the file does no harm
                path.unlink()
            if sys.platform != "win32":
                os.close(handle)
    finally:
        for folder in made:
            with suppress(OSError):  # there is something in it now
                folder.rmdir()


def is_locked(output: Path) -> bool:
    """Whether a job is at work on this output; false where that cannot be known."""
    try:
        handle = os.open(lock_path(output), os.O_RDONLY)
    except OSError:  # there is none, or it is another user's
        return False
    try:
        return _lock(handle, lock_path(output)) is False
    finally:
        os.close(handle)


def _acquire(path: Path) -> tuple[int, bool] | None:
    """An open file that still has its name, and whether it could be locked; None while another process holds it."""
    end = time.monotonic() + _GLANCE
    while True:
        handle = _open(path)
        try:
            is_held = _lock(handle, path)
        except ResourceError:
            os.close(handle)
            raise
        if is_held is False:
            os.close(handle)
            if time.monotonic() >= end:
                return None
            time.sleep(_PAUSE)
            continue
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle, is_held is True
        os.close(handle)  # deleted by its last holder between opening and locking


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        message = f"`{path.parent}` cannot be written: {reason}"
        if error.errno == errno.ENOSPC:
            raise ResourceError(message, "free some space, or choose a directory on another disk") from error
        raise UsageError(message, "check its permissions, or choose another directory") from error


def _lock(handle: int, path: Path) -> bool | None:
    """Lock an open file unless another process has locked it; None where its file system has no locks.

    Raises:
        ResourceError: the disk fails.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # what either system says of a lock that is held
        return False
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return None
        raise ResourceError(
            f"`{path}` cannot be locked: {error.strerror}", "choose a directory on another disk"
        ) from error
    return True
