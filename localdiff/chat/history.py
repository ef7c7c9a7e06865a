"""Input history, in a private file that all chats share.

Knows prompt-toolkit's history file; knows nothing about what is typed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from localdiff.machine.private_file import make_private_folder


class PrivateHistory(FileHistory):
    """A history file that only its owner may read. When it can no longer be written, that is reported once."""

    def __init__(self, path: Path, complain: Callable[[str], None]) -> None:
        self._complain: Callable[[str], None] | None = complain
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Append an entry."""
        try:
            super().store_string(string.encode("utf-8", "replace").decode())
        except OSError as error:
            if self._complain is not None:
                self._complain(f"the history cannot be written: {error.strerror}")
                self._complain = None


def open_history(path: Path | None, complain: Callable[[str], None]) -> History:
    """The history in a file, created if missing; in memory without a path, or where the file cannot be used.

    A device, such as a link to `/dev/null`, or a pipe keeps nothing, and is left as it is.
    """
    if path is None:
        return InMemoryHistory()
    try:
        make_private_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if not path.is_file():
            return InMemoryHistory()
        os.chmod(path, 0o600)
    except OSError as error:
        complain(f"the history `{path}` cannot be used: {error.strerror}")
        return InMemoryHistory()
    return PrivateHistory(path, complain)
