"""What a user is told while the prompt is read from standard input.

Knows words and when they are needed: who is to type has to know it, and a pipe may never end. Reads nothing itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine

DELAY = 0.5
"""Seconds; most pipes are at their end by then."""

LONG_DELAY = 3.0
"""Seconds until it is said where it cannot be taken back."""

_PATIENCE = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Says on stderr that standard input is read.

    Attributes:
        output: the streams.
        shown: whether there may be a line that moves.
    """

    output: Output
    shown: bool = True

    @contextmanager
    def reading(self, stdin: BinaryIO, *, adds: bool) -> Iterator[None]:
        """Say it at once before somebody types, and of a pipe after a while, until the end of the block.

        `adds` says that what is read is added to a prompt that is there already. Only then is it said where stderr is
        no terminal: of a command over ssh, for example, whose input has no end, and which nobody meant to be read.
        """
        if stdin.isatty():
            if self.output.notes:
                end = "Ctrl-Z and Enter end it" if sys.platform == "win32" else "Ctrl-D ends it"
                self.output.stderr.write(f"Reading the prompt from the terminal; {end}.\n")
            yield
            return
        status = StatusLine(self.output.stderr, shown=self.shown and not self.output.quiet)
        words, say, delay = "reading the prompt from standard input", status.show, DELAY
        if adds:
            words = "reading standard input, too; `< /dev/null` leaves it out"
            if not self.output.stderr.terminal:
                say, delay = self.output.warning, LONG_DELAY
        timer = threading.Timer(delay, say, [words])
        timer.daemon = True  # a terminal that is held with Ctrl-S may keep it for ever
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join(_PATIENCE)
            status.clear()
