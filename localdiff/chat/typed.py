"""Line input from a pipe or a file.

Knows lines, and messages in triple quotes that go on over several; knows no keys.
"""

from __future__ import annotations

from typing import BinaryIO

from localdiff.chat.slash import is_open
from localdiff.errors import UsageError


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
            UsageError: a line is not UTF-8.
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
        try:
            line = data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"a line is not text: its byte {error.start} is not UTF-8",
                "a message is UTF-8 text; `iconv` converts other encodings",
            ) from None
        return line.removesuffix("\n").removesuffix("\r")
