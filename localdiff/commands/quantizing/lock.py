"""One job an output at a time.

Knows a lock that ends with its process, however that ends; knows nothing about what it guards. The locked file stays:
whoever deleted it might delete another's lock. On Windows nothing is locked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localdiff.errors import UsageError

if sys.platform != "win32":
    import fcntl


def lock_path(output: Path) -> Path:
    """The file that is locked for an output."""
    return output.with_name(f".{output.name}.lock")


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Be the only job that works on this output until the end of the block.

    Raises:
        UsageError: another process is at it, or the folder refuses new files.
    """
    path = lock_path(output)
    handle = _open(path)
    try:
        if not _lock(handle):
            raise UsageError(
                f"another process is at work on `{output}`", "wait for its end, or choose another directory"
            )
        yield
    finally:
        os.close(handle)


def is_locked(output: Path) -> bool:
    """Whether a job is at work on this output."""
    if not lock_path(output).exists():
        return False
    handle = _open(lock_path(output))
    try:
        return not _lock(handle)
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise UsageError(
            f"`{path.parent}` cannot be written: {error.strerror}", "choose a directory that you may write to"
        ) from error


def _lock(handle: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
