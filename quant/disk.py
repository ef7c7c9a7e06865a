"""Everything this package does to a disk, one operation a method.

Knows files and directories; knows nothing about what is in them. Tests put a disk in its place that stops after any
number of operations.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from .errors import SpaceError

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


class Disk:
    """The real disk. Whatever is written is on it when `sync` returns."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents; it may exist."""
        path.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path) -> BinaryIO:
        """A new, empty file, in place of an old one."""
        return path.open("wb", buffering=0)

    def write(self, file: BinaryIO, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at a position.

        Raises:
            SpaceError: the disk is full.
        """
        view = memoryview(data)
        try:
            file.seek(offset)
            while view:
                view = view[file.write(view) :]
        except OSError as error:
            if error.errno in _FULL:
                raise SpaceError(
                    f"the disk is full while writing `{file.name}`", "free some space and run the same command again"
                ) from error
            raise

    def sync(self, file: BinaryIO) -> None:
        """Wait until the file is on the disk."""
        os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name, in place of a file that has it."""
        os.replace(old, new)
        _sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        """Delete a file that may be gone already, or a whole directory."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def put(disk: Disk, path: Path, content: bytes) -> None:
    """Write a small file so that it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
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
    finally:
        os.close(descriptor)
