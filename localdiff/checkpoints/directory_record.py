"""What is remembered about directories between runs: a small JSON file for each, in a folder of the state directory.

Knows where such a file is and how it is read and written; knows nothing about its content or its validity.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from localdiff.machine.private_file import make_private_folder, write_private


def read_record(folder: Path, directory: Path) -> dict[str, Any]:
    """What is recorded about a directory; a record that cannot be read counts as empty."""
    return _read(_file(folder, directory))


def write_record(
    folder: Path, directory: Path, content: Mapping[str, object], *, is_there: Callable[[str], bool] = os.path.isdir
) -> None:
    """Records something about a directory, and forgets those that are gone, unless a disk may just not be mounted.

    Args:
        folder: where records of this kind are kept.
        directory: what the record is about.
        is_there: whether the directory at a path is still what it was recorded as.

    Raises:
        OSError: the record cannot be written.
    """
    record = {"directory": str(directory.resolve()), **content}
    make_private_folder(folder)
    write_private(_file(folder, directory), json.dumps(record, indent=2).encode())
    for file in folder.glob("*.json"):
        known = _read(file).get("directory")
        if isinstance(known, str) and not is_there(known) and os.path.isdir(os.path.dirname(known)):
            with suppress(OSError):  # another process may have deleted it
                file.unlink()


def _file(folder: Path, directory: Path) -> Path:
    return folder / (hashlib.sha256(os.fsencode(directory.resolve())).hexdigest() + ".json")


def _read(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
