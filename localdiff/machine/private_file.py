"""Private files, readable by their owner alone and written completely or not at all.

Knows modes, and which names are free; knows nothing about what is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from quant.renaming import replace, temporary_file


def make_private_folder(path: Path) -> None:
    """Makes a folder for its owner alone, and the missing folders above it likewise.

    Raises:
        OSError: it cannot be made.
    """
    for folder in reversed(path.parents):
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700, exist_ok=True)  # with `parents=True` they would be open to others
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_new(paths: Iterable[Path], data: bytes) -> tuple[Path, os.stat_result]:
    """Writes a private file under the first free one of several names, which no other program can then take.

    Returns:
        Its path, and its status as from `write_private`.

    Raises:
        OSError: it cannot be written.
    """
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        try:
            return path, write_private(path, data)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def write_private(path: Path, data: bytes) -> os.stat_result:
    """Writes a file atomically, for its owner alone.

    Returns:
        The status of what was written, taken before another program could change it.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """
    with temporary_file(path, 0o600) as temporary:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        status = temporary.stat()
        replace(temporary, path)
    return status
