"""A status line at the bottom of a terminal, rewritten in place and removed at the end, with the log above it.

Uses carriage returns and spaces only, no escape codes. Knows nothing about what the line says.
"""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localdiff.quoting import printable
from localdiff.ui.output import Output, Stream
from localdiff.ui.terminal import keeps_waiting
from localdiff.view.columns import folded
from localdiff.view.widths import clip, text_width

# A terminal's echo of Ctrl-C comes after the line; clearing a little further removes it too.
_ECHO = 4
_AGAIN = 0.5
"""Seconds within which a repeated message is dropped."""

PAUSE = 30.0
"""Seconds after which a line of progress is due in any case, where no line can be rewritten, as in a log."""
MIN_SECONDS = 1.0
"""Minimum time between two lines there, and before the first."""
_NUMBER = re.compile(r"\d")


class StatusLine:
    """A line on a terminal; where the stream is not a terminal, or lines may not move, it shows nothing."""

    def __init__(self, stream: Stream, *, shown: bool = True) -> None:
        self.shown = shown and stream.moving
        self._stream = stream
        self._text = ""
        self._above: Callable[[str], None] | None = None

    def show(self, text: str) -> None:
        """Replace the text shown."""
        if not self.shown or self._stream.background:
            return
        text = clip(text, max(self._stream.columns - 1, 0))
        self._stream.write("\r" + text + self._blank_after(text_width(text)))
        self._text = text

    def clear(self) -> None:
        """Remove the line and leave the cursor at its start, unless the end of the process would wait for that."""
        if self._text and not self._stream.background and not keeps_waiting(self._stream.file):
            width = text_width(self._text)
            self._stream.write("\r" + " " * width + self._blank_after(width) + "\r")
        self._text = ""

    def give_way(self, above: Callable[[str], None]) -> None:
        """Remove the line for good: something else now draws on this terminal, and `above` prints lines that stay."""
        self.clear()
        self.shown = False
        self._above = above

    def above(self, line: str) -> None:
        """Print a line that stays, above this one; on any kind of stream."""
        if self._above is not None:
            self._above(line)
            return
        text = self._text
        self.clear()
        self._stream.write(line + "\n")
        if text:
            self.show(text)

    def _blank_after(self, width: int) -> str:
        """Spaces over the rest of an earlier, wider text, and back over them so that an echo lands beside the text."""
        columns = max(text_width(self._text), width) + _ECHO
        blanks = min(columns, self._stream.columns - 1) - width
        return " " * blanks + "\b" * blanks if blanks > 0 else ""


def progress_of(
    output: Output, status: StatusLine, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """Shows how far a job is: in the status line, or, where that cannot be rewritten, in lines that stay.

    Those are a line for each stage that lasts, which is what a text says before its first number, and one now and then.
    """
    if output.quiet or output.stderr.moving:
        return status.show
    told_at = clock()
    told: str | None = None

    def tell(text: str) -> None:
        nonlocal told_at, told
        stage, since = _NUMBER.split(text, 1)[0], clock() - told_at
        if (stage != told and since >= MIN_SECONDS) or since >= PAUSE:
            told_at, told = clock(), stage
            status.above(text)

    return tell


@contextmanager
def status_line(output: Output, *, shown: bool = True) -> Iterator[StatusLine]:
    """A line on stderr, except with `--quiet`, and above it, until its end, the package's log: warnings; with `-v` all.

    Warnings of libraries would otherwise be written straight into the canvas being drawn.
    """
    status = StatusLine(output.stderr, shown=shown and not output.quiet)

    def say(label: str, text: str) -> None:
        for line in folded(text, output.stderr.room, start=f"{label}: "):
            status.above(line)

    def show(message: Warning | str, *_where: object, **_rest: object) -> None:
        if not output.quiet:
            say("warning", printable(str(message)))

    logger, handler = logging.getLogger("localdiff"), _Messages(say)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO if output.verbose else logging.ERROR if output.quiet else logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    showwarning, warnings.showwarning = warnings.showwarning, show
    try:
        yield status
    finally:
        warnings.showwarning = showwarning
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        status.clear()


class _Messages(logging.Handler):
    """Says the level and the text of each message, except of one that is repeated: threads ask the Hub all at once."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        super().__init__()
        self._say, self._last, self._said_at = say, "", 0.0

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        is_again = text == self._last and record.created - self._said_at < _AGAIN
        self._last, self._said_at = text, record.created
        if not is_again:
            self._say(record.levelname.lower(), text)
