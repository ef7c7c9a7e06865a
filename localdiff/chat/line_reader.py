"""Line input from a pipe or a file, or from a terminal that edits lines itself.

Knows lines, and messages in triple quotes that span several; knows no keys.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import BinaryIO

from localdiff.chat.interrupts import Interrupts, LeaveAtOnce
from localdiff.chat.slash import CONTINUATION, PROMPT, QUOTES, is_open
from localdiff.errors import UsageError
from localdiff.utf8 import MAX_BYTES, decoded, too_long


class LineReader:
    """Reads line by line.

    Args:
        file: standard input.
        interrupts: the presses of Ctrl-C.
        show: writes to the terminal on which lines are typed, each after a prompt; None where nobody types.
    """

    def __init__(self, file: BinaryIO, interrupts: Interrupts, show: Callable[[str], None] | None = None) -> None:
        self._file = file
        self._interrupts = interrupts
        self._show = show

    def read(self, text: str = "") -> str | None:
        """The next line, or all lines of a message in triple quotes; `text` is ignored.

        Returns:
            The text; None after Ctrl-C where lines are typed; the terminal has cleared the line.

        Raises:
            EOFError: there is no more input.
            LeaveAtOnce: Ctrl-C where nobody types, so that there is no line to clear.
            UsageError: a line is not text, or more than any context holds, or the input ends within triple quotes.
                All lines of the message have been read by then, so that none is taken for a command.
        """
        if self._show is None:
            with self._interrupts.raising(LeaveAtOnce):
                return self._message()
        try:
            with self._interrupts.raising(KeyboardInterrupt):
                return self._message()
        except KeyboardInterrupt:
            self._show("\n")
            return None

    def _message(self) -> str:
        lines = [self._line(PROMPT)]
        is_whole = not is_open(lines[0].decode(errors="replace"))
        while not is_whole:
            try:
                lines.append(self._line(CONTINUATION))
            except EOFError:
                raise UsageError(
                    f"the input ends before the `{QUOTES}` that closes its last message", "none of it was sent"
                ) from None
            # An open message is closed only by quotes at the end of a line.
            is_whole = lines[-1].decode(errors="replace").rstrip().endswith(QUOTES)
        if sum(map(len, lines)) > MAX_BYTES:
            raise too_long("a message")
        return "\n".join(decoded(line, "a line", "a message is UTF-8 text") for line in lines)

    def _line(self, prompt: str) -> bytes:
        """The next line without its line end."""
        if self._show is not None:
            self._show(prompt)
        line = self._file.readline()
        if not line:
            if self._show is not None:
                self._show("\n")
            raise EOFError
        # Each of several files that are piped one after the other may begin with a byte order mark.
        return line.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
