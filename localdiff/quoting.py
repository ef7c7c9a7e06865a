"""Outside text in our own lines: nothing that controls a terminal, and words that a shell reads literally.

Knows characters and shells; knows nothing about streams, or where a text comes from.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path


def printable(text: str) -> str:
    """One line that cannot control a terminal, for outside text such as file names.

    A byte of a name that is not UTF-8 is shown as that byte, as in `shell_word`.
    """
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    is_byte = 0xDC80 <= ord(character) <= 0xDCFF  # what Python makes of it: a lone surrogate
    return f"\\x{ord(character) - 0xDC00:02x}" if is_byte else repr(character)[1:-1]


def shell_word(text: str | Path) -> str:
    """A word of a command line, fit to read and to copy: quoted where a shell would interpret it.

    On Windows for PowerShell and, where `"` is enough, for cmd as well.
    """
    if sys.platform == "win32":
        return _word_of_windows(printable(str(text)))
    if str(text).isprintable():
        return shlex.quote(str(text))
    plain = frozenset(range(32, 127)) - frozenset(b"'\\")
    return "$'" + "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in os.fsencode(text)) + "'"


def _word_of_windows(text: str) -> str:
    if re.fullmatch(r"[\w.:/\\+=-]+", text):
        return text
    if not re.search(r'["`$%!“”„]', text):
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"
