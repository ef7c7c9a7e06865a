"""Fenced code blocks of Markdown, found line by line.

Knows what opens a block and what closes it; knows nothing about what is done with its lines.
"""

from __future__ import annotations

import re

# Behind back-ticks there are none: ```` ```ls``` ```` on one line is code within a sentence.
_OPENING = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")


class Fences:
    """Where in a text there is a block of code, for lines that are taken in one after the other.

    A block is closed by at least as many marks as have opened it: a longer fence may stand around a shorter one.
    """

    def __init__(self) -> None:
        self._mark = ""

    @property
    def is_open(self) -> bool:
        """Whether the lines taken in end within a block."""
        return bool(self._mark)

    def take(self, line: str) -> bool:
        """Take in a line, without its end, however far it is indented; whether it opens or closes a block."""
        text = line.strip()
        if not self._mark:
            opening = _OPENING.match(text)
            self._mark = opening[0] if opening else ""
            return opening is not None
        closes = text.startswith(self._mark) and not text.strip(self._mark[0])
        if closes:
            self._mark = ""
        return closes
