"""Final text for a terminal, its lines broken between words.

Knows blanks, and how a terminal fills its rows; knows nothing about streams. Rows that continue a line are indented
like its text after list and quote marks. Code is not touched, so that it can be copied unchanged: the terminal breaks
its lines, and words longer than a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from localdiff.view.line_breaks import columns_of, unbroken
from localdiff.view.line_marks import LineMarks
from localdiff.view.widths import character_width, text_width

_TAB_COLUMNS = 8
_BLANKS = " \t"
_TOKEN = re.compile(r"(?!\Z)([ \t]*)([^ \t\n]*)(\n?)")


class WordWrap:
    """Breaks a text that comes piece by piece; a word that the next piece may continue is held back.

    Args:
        columns: of the terminal, asked for at each piece; no row that is broken here reaches the last column.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._held = ""
        self._used = 0  # columns of the row that is being filled
        self._indent = 0  # columns before the rows that continue the line
        self._begins = True  # whether the line has no word yet
        self._marks = LineMarks()

    def add(self, text: str) -> str:
        """What can be written now, given more safe text."""
        text = self._held + text
        last = max(map(text.rfind, (*_BLANKS, "\n")))
        length = last + 1 if text[last : last + 1] == "\n" else len(text[: last + 1].rstrip(_BLANKS))
        self._held = text[length:]
        return self._broken(text[:length])

    def end(self) -> str:
        """What was held back; the next piece begins a line."""
        text = self._broken(self._held)
        self._held = ""
        self._begin_line()
        return text

    def _broken(self, text: str) -> str:
        columns = self._columns()
        return "".join(self._placed(match[1], match[2], match[3], columns) for match in _TOKEN.finditer(text))

    def _placed(self, gap: str, word: str, newline: str, columns: int) -> str:
        """A word with the blanks before it, on this row or on a new one."""
        start = len((self._used * " " + gap).expandtabs(_TAB_COLUMNS))
        if word:
            if self._marks.lead:
                self._indent = start if start <= columns // 2 else 0
            self._marks.add(word)
        placed = ""
        for part in unbroken(word):
            if start + columns_of(part) >= columns and not (self._begins or self._marks.is_code):
                gap, start = ("\n" + self._indent * " ", self._indent) if part else ("", self._used)
            start = self._used = _behind(start % columns, part, columns)
            self._begins = self._begins and not part
            placed, gap = placed + gap + part, ""
        if newline:
            self._begin_line()
        return placed + newline

    def _begin_line(self) -> None:
        self._used, self._begins = 0, True
        self._marks.begin_line()


def wrapped(text: str, columns: int) -> str:
    """A whole safe text, broken as `WordWrap` breaks it."""
    wrap = WordWrap(lambda: columns)
    return wrap.add(text) + wrap.end()


def _behind(used: int, word: str, columns: int) -> int:
    """The column that a terminal is at after a word, which may fill several rows."""
    if used + (width := text_width(word)) <= columns:
        return used + width
    for character in word:
        width = character_width(character)
        used = used + width if used + width <= columns else width
    return used
