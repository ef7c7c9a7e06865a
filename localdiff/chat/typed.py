"""Typed lines from what is no terminal: a pipe or a file.

Knows lines, and messages in triple quotes that go on over several; knows no keys.
"""

from __future__ import annotations

from typing import BinaryIO

from localdiff.chat.slash import is_open


class LineReader:
    """Reads one line after the other.

    Args:
        file: standard input; None reads nothing.
    """

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file

    def read(self, text: str = "") -> str:
        """The next line, or all lines of a message in triple quotes; `text` has no line to stand in.

        Raises:
            EOFError: there is no more.
        """
        line = self._line()
        while is_open(line):
            try:
                line += "\n" + self._line()
            except EOFError:
                break
        return line

    def _line(self) -> str:
        data = b"" if self._file is None else self._file.readline()
        if not data:
            raise EOFError
        return data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
