"""Moves complete files to their final names, where another program may have the file of that name open.

Knows temporary names and renames; knows nothing about what is in a file.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE, PAUSE = 2.0, 0.05
"""Seconds."""


def replace(old: Path, new: Path) -> None:
    """`os.replace`, retried briefly on Windows, where scanners and indexers open what has just been written.

    Raises:
        OSError: the rename is refused or fails.
    """
    end = time.monotonic() + (PATIENCE if sys.platform == "win32" else 0.0)
    while True:
        try:
            os.replace(old, new)
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(PAUSE)
        else:
            return


@contextmanager
def temporary_file(target: Path, mode: int = 0o666) -> Iterator[Path]:
    """An empty file next to the target; it is removed at the end unless it has been renamed.

    Args:
        mode: its permissions, less those that the umask takes.

    Raises:
        OSError: it cannot be made.
    """
    # The name is chosen before the file exists, so an interruption at any point still removes the file. It is short,
    # since the target's name may already have the greatest possible length.
    temporary = target.with_name(f".localdiff-{secrets.token_hex(8)}.partial")
    try:
        temporary.touch(mode, exist_ok=False)
        yield temporary
    finally:
        with suppress(OSError):  # a disk that takes no files may not report the file as missing
            if sys.platform == "win32":  # it deletes no read-only file, which a replacement of a read-only file is
                temporary.chmod(stat.S_IWRITE)
            temporary.unlink()
