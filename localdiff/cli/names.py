"""Names of files and folders that a command writes, as they were typed.

Knows what a `Path` forgets: that a name was empty, which it takes for the working directory, or ended in a slash, as
that of a folder does.
"""

from __future__ import annotations

import os
from pathlib import Path

from localdiff.errors import UsageError


def file_name(text: str) -> Path:
    """The name of a file.

    Raises:
        UsageError: it is empty, or that of a folder.
    """
    if not text:
        raise UsageError("the name of a file is empty", "give one, or leave out the option")
    if text.endswith(("/", os.sep)):
        raise UsageError(f"`{text}` is the name of a folder", f"name a file in it: `{text}FILE`")
    return Path(text)


def events_name(text: str) -> str:
    """The name of a file, or `-`, which stays text.

    Raises:
        UsageError: it is empty, or that of a folder.
    """
    file_name(text)
    return text


def directory_name(text: str) -> Path:
    """The name of a folder.

    Raises:
        UsageError: it is empty.
    """
    if not text:
        raise UsageError("the name of a folder is empty", "give one, or leave out the option")
    return Path(text)
