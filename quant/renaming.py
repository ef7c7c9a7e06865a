"""Names for files that are complete, where another program may be looking at the file that has the name now.

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
    """`os.replace`; on Windows again for a short while: scanners and indexers open what has just been written.

    Raises:
        OSError: it is refused, or fails.
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
    """An empty file beside the target, which is removed at the end unless it has been renamed.

    Args:
        mode: its permissions, less those that the umask takes.

    Raises:
        OSError: it cannot be made.
    """
    # The name is known before the file exists: whatever ends the process in between, it is removed. It is short,
    # since the target's may be as long as a name can be.
    temporary = target.with_name(f".localdiff-{secrets.token_hex(8)}.partial")
    try:
        temporary.touch(mode, exist_ok=False)
        yield temporary
    finally:
        with suppress(OSError):  # a disk that takes no files may not say that there is none
            if sys.platform == "win32":  # which deletes no file that is protected, as one that replaces such a one is
                temporary.chmod(stat.S_IWRITE)
            temporary.unlink()
