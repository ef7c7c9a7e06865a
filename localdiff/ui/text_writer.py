"""Text on its way to a stream.

Knows streams and lines; knows nothing about whose text it is.
"""

from __future__ import annotations

from localdiff.ui.output import Stream
from localdiff.view.sanitize import safe_text
from localdiff.view.word_wrap import WordWrap


class TextWriter:
    """Text on its way to a stream: exact into a pipe or a file; on a terminal made safe, and broken between words.

    A stream may share its screen or its file with another; then only whole lines are written, so that the other's
    output begins in the first column.

    Args:
        whole_lines: whether the stream gets whole lines only.
        ends_line: whether the last line is always ended; otherwise exact text stays exact.
        after: lines of the text that the stream has already; code may go on that begins in them.
    """

    def __init__(
        self, stream: Stream, *, whole_lines: bool, style: str | None = None, ends_line: bool = False, after: str = ""
    ) -> None:
        self._stream = stream
        self._whole_lines = whole_lines
        self._wrap = WordWrap(lambda: stream.columns) if stream.terminal else None
        if self._wrap is not None:
            self._wrap.add(safe_text(after))
        self._style = style
        self._ends_line = ends_line or stream.terminal or style is not None
        self._buffer = ""
        self._open = False

    def add(self, text: str) -> None:
        """Add text, and write what may be written now."""
        self._buffer += text
        self._write(self._buffer.rfind("\n") + 1 if self._whole_lines else len(self._buffer))

    def end(self) -> None:
        """Write the rest, and end the last line unless the text is exact."""
        self._write(len(self._buffer))
        if self._wrap is not None:
            self._put(self._wrap.end())
        if self._open and self._ends_line:
            self._stream.write("\n")
            self._open = False

    def _write(self, length: int) -> None:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        self._put(text if self._wrap is None else self._wrap.add(safe_text(text)))

    def _put(self, text: str) -> None:
        if text:
            self._stream.write(text if self._style is None else self._stream.styled(text, self._style))
            self._open = not text.endswith("\n")
