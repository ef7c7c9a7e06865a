"""Reads text files that are attached to a message.

Knows what is text and what is not; knows nothing about how many tokens fit.
"""

from __future__ import annotations

import glob
import os
import shlex
import stat
import sys
from contextlib import suppress
from pathlib import Path

from localdiff.chat.session import Attachment
from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.utf8 import decoded, read_bytes

_IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif"}


def split_words(text: str) -> list[str]:
    """The words of a command line, as a shell would read them: quoted, or with escaped blanks.

    On Windows a backslash is part of a path, and `"` the only quote.

    Raises:
        ValueError: a quote is left open.
    """
    if sys.platform != "win32":
        return shlex.split(text)
    words = shlex.shlex(text, posix=True, punctuation_chars=False)
    words.whitespace_split, words.commenters, words.escape, words.quotes = True, "", "", '"'
    return list(words)


def split_paths(argument: str) -> list[Path]:
    """The paths in the argument of a command, split by `split_words`.

    Raises:
        UsageError: a quote is left open, or two quotes enclose nothing.
    """
    try:
        words = split_words(argument)
    except ValueError:
        raise UsageError(f"unclosed quote in `{argument:.60}`", 'quote a path with spaces: `"my notes.txt"`') from None
    if not all(words):
        raise UsageError(f"an empty name in `{argument:.60}`", "Tab completes paths")
    return [expanded(word) for word in words]


def matched(path: Path) -> list[Path]:
    """The files that a pattern matches; the path itself if it exists as it is, or nothing matches."""
    if glob.has_magic(str(path)) and not os.path.lexists(path):
        with suppress(ValueError):  # a null byte
            return sorted(filter(Path.is_file, map(Path, glob.glob(str(path))))) or [path]
    return [path]


def read_attachment(path: Path) -> Attachment:
    """A text file.

    Raises:
        UsageError: there is no such file, or it is not text.
    """
    try:
        if not stat.S_ISREG(mode := path.stat().st_mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a file"
            raise UsageError(f"`{path}` is {what}", "`/file` takes text files")
        if path.suffix.lower() in _IMAGES:
            raise UsageError(f"`{path}` is an image, and this program handles text only", "describe it in words")
        with path.open("rb") as file:
            data = read_bytes(file, f"`{path}`")
    except FileNotFoundError:
        raise UsageError(f"no such file: `{path}`", "Tab completes paths after `/file`") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"`{path}` cannot be read: {reason}", "`/file` takes text files") from error
    text = decoded(data, f"`{path}`", "`/file` takes UTF-8 text")
    if not text.strip():
        raise UsageError(f"`{path}` is empty", "`/file` takes text files")
    # The bytes of a name need not be text, but what the model reads must be.
    name = os.fsencode(path.name).decode(errors="backslashreplace")
    return Attachment(name=name, text=text.replace("\r\n", "\n"))
