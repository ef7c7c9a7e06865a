"""Files that only their owner may read, and that are there complete or not at all.

Knows modes, temporary names and renames; knows nothing about what is written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Makes a folder for its owner alone, where there is none.

    Raises:
        OSError: it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Puts a file in place at once, for its owner alone.

    Raises:
        OSError: it cannot be written; what was there is there still.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with suppress(FileNotFoundError):  # of a process of the same number that was killed
        partial.unlink()
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
