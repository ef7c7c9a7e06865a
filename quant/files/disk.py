"""Everything that jobs do to a disk, one operation per method.

Knows files and directories; knows nothing about what is in them. Tests substitute a disk that stops after any number of
operations.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from quant.errors import OutputError, SpaceError
from quant.names import PARTIAL
from quant.renaming import replace

_LIMITS = {errno.EFBIG, errno.EDQUOT}
"""A limit on the size of files (4 GB on FAT32, or `ulimit -f`) or a user's quota: the disk may have space."""
_HINTS = {
    errno.EIO: "look at the disk and its connection",
    errno.ENOENT: "its folder was moved or deleted meanwhile: run the same command again",
}
"""What to do about errors other than missing permissions."""
_WITHOUT_SYNC = {errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems that cannot sync a directory, as some network file systems and those of other systems."""


class Disk:
    """The real disk. What was written has reached it when `sync` returns.

    Every method raises `SpaceError` where the disk is full or a limit is reached, and `OutputError` where an operation
    is refused or fails.
    """

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents; it may exist."""
        with _translated_errors(path):
            path.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path) -> BinaryIO:
        """Create an empty file, replacing an old one."""
        with _translated_errors(path):
            return path.open("wb", buffering=0)

    def write(self, file: BinaryIO, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at a position."""
        view = memoryview(data)
        with _translated_errors(file.name):
            file.seek(offset)
            while view:
                view = view[file.write(view) :]

    def sync(self, file: BinaryIO) -> None:
        """Wait until the file is on the disk."""
        with _translated_errors(file.name):
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory, replacing a file or an empty directory of that name."""
        with _translated_errors(new):
            if os.name == "nt" and old.is_dir() and new.is_dir():
                os.rmdir(new)  # Windows replaces no directory, not even an empty one
            replace(old, new)
            _sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        """Delete a file that may be gone already, or a whole directory."""
        with _translated_errors(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def _translated_errors(path: Path | str) -> Iterator[None]:
    """Turns an `OSError` into an error of this package that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in _LIMITS:
            raise SpaceError(
                f"`{path}` cannot be written: {error.strerror}",
                "write to another disk, or raise the limit, and run the same command again",
            ) from error
        if error.errno == errno.ENOSPC:
            raise SpaceError(
                f"the disk is full while writing `{path}`", "free some space and run the same command again"
            ) from error
        raise OutputError(
            f"`{path}` cannot be written: {error.strerror or error}",
            _HINTS.get(error.errno or 0, "choose a directory that you may write to"),
        ) from error


def write_atomically(disk: Disk, path: Path, content: bytes) -> None:
    """Write a small file atomically."""
    partial = path.with_name(path.name + PARTIAL)
    with disk.create(partial) as file:
        disk.write(file, 0, content)
        disk.sync(file)
    disk.rename(partial, path)


def _sync_directory(path: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _WITHOUT_SYNC:
            raise
    finally:
        os.close(descriptor)
