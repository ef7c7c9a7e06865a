"""A lock that allows one job at a time per output.

The lock ends with its process, however that ends. Knows nothing about what it guards. Whoever holds the lock
deletes its file before releasing it, and a lock on a file that is deleted by then does not count. On Windows no file
that is open can be deleted: that follows the release, unless the next one has it open already.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localdiff.errors import UsageError


def lock_path(output: Path) -> Path:
    """The lock file of an output."""
    return output.with_name(f".{output.name}.lock")


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Holds the lock of an output until the end of the block.

    Raises:
        UsageError: another process is working on it, or the folder is not writable.
    """
    path = lock_path(output)
    handle = _take(path)
    if handle is None:
        raise UsageError(f"another process is working on `{output}`", "wait until it ends, or choose another directory")
    try:
        yield
    finally:
        if sys.platform == "win32":
            os.close(handle)
        with suppress(OSError):  # a folder that has become read-only: the file does no harm
            path.unlink()
        if sys.platform != "win32":
            os.close(handle)


def is_locked(output: Path) -> bool:
    """Whether a job is at work on this output."""
    try:
        handle = os.open(lock_path(output), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _lock(handle)
    finally:
        os.close(handle)


def _take(path: Path) -> int | None:
    """An open, locked file that still has its name; None while another process holds it."""
    while True:
        handle = _open(path)
        if not _lock(handle):
            os.close(handle)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # deleted by its last holder between opening and locking


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise UsageError(
            f"`{path.parent}` cannot be written: {error.strerror}", "choose a directory that you may write to"
        ) from error


def _lock(handle: int) -> bool:
    """Lock an open file unless another process has."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # what either system says of a lock that is held
        return False
    return True
