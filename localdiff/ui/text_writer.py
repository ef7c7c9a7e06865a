"""Text on its way to a stream.

Knows streams and lines; knows nothing about whose text it is.
"""

from __future__ import annotations

from localdiff.ui.output import Stream
from localdiff.view.sanitize import safe_text


class TextWriter:
    """Text on its way to a stream: exact into a pipe or a file, made safe on a terminal.

    A stream may share its screen with another one that moves; then only whole lines are written, so that what the other
    one writes begins in the first column. A pipe's reader may print on that screen as well.

    Args:
        whole_lines: whether the stream, where it is a terminal or a pipe, gets whole lines only.
        ends_line: whether the last line is always ended; otherwise exact text stays exact.
    """

    def __init__(self, stream: Stream, *, whole_lines: bool, style: str | None = None, ends_line: bool = False) -> None:
        self._stream = stream
        self._whole_lines = whole_lines and (stream.terminal or stream.piped)
        self._style = style
        self._ends_line = ends_line or stream.terminal or style is not None
        self._buffer = ""
        self._open = False

    def add(self, text: str) -> None:
        """Write what may be written now."""
        self._buffer += text
        self._write(self._buffer.rfind("\n") + 1 if self._whole_lines else len(self._buffer))

    def end(self) -> None:
        """Write what is left, and end the last line unless the text is exact."""
        self._write(len(self._buffer))
        if self._open and self._ends_line:
            self._stream.write("\n")
            self._open = False

    @property
    def leaves_line_open(self) -> bool:
        """Whether a pipe got a last line without an end, behind which its reader may have left a terminal's cursor."""
        return self._open and self._stream.piped

    def _write(self, length: int) -> None:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if not text:
            return
        text = safe_text(text) if self._stream.terminal else text
        self._stream.write(text if self._style is None else self._stream.styled(text, self._style))
        self._open = not text.endswith("\n")
