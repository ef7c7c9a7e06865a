"""Line input from a pipe or a file.

Knows lines, and messages in triple quotes that go on over several; knows no keys.
"""

from __future__ import annotations

import codecs
from typing import BinaryIO

from localdiff.chat.slash import is_open
from localdiff.utf8 import decoded


class LineReader:
    """Reads line by line.

    Args:
        file: standard input; None reads nothing.
    """

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file

    def read(self, text: str = "") -> str:
        """The next line, or all lines of a message in triple quotes; `text` is ignored.

        Raises:
            EOFError: there is no more input.
            UsageError: a line is not text. All lines of its message have been read then: none of them is a command.
        """
        lines = [self._line()]
        while is_open(b"\n".join(lines).decode(errors="replace")):
            try:
                lines.append(self._line())
            except EOFError:
                break
        return "\n".join(decoded(line, "a line", "a message is UTF-8 text") for line in lines)

    def _line(self) -> bytes:
        line = b"" if self._file is None else self._file.readline()
        if not line:
            raise EOFError
        # Every file of several that are piped one after the other may begin with its mark.
        return line.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
