"""Final text for a terminal, its lines broken between words.

Knows blanks, items of lists, fences of code, and how a terminal fills its rows; knows nothing about streams. Rows that
go on with a line are indented as it is, or as the text of an item. Code is not touched, so that it can be copied as it
is: the terminal breaks its lines, as it does a word that is longer than a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from localdiff.view.line_breaks import columns_of, unbroken
from localdiff.view.widths import character_width, text_width

_TAB_COLUMNS = 8
_BLANKS = " \t"
_TOKEN = re.compile(r"(?!\Z)([ \t]*)([^ \t\n]*)(\n?)")
_FENCE = re.compile(r"(`{3,})[^`]*\Z|(~{3,})")
_MARK = re.compile(r"[-*+]|[0-9]{1,9}[.)]")
"""What begins an item of a list, if a blank is behind it."""


class WordWrap:
    """Breaks a text that comes piece by piece; a word that the next piece may go on with is held back.

    Args:
        columns: of the terminal, asked for each piece; no row that is broken here reaches the last one.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._held = ""
        self._used = 0  # columns of the row that is being filled
        self._indent = 0  # columns before the rows that go on with the line
        self._begins = True  # whether the line has no word yet
        self._leads = True  # whether the line has nothing yet but marks of quotes and lists
        self._is_quote = False  # whether one of them is that of a quote
        self._fence = ""  # what closes the block of code
        self._quotes_code = False  # whether that block is within a quote, and ends with it
        self._is_code = False  # whether this line is code, or a fence

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
        start = _behind_blanks(self._used, gap)
        if word and self._leads:
            self._indent = start if start <= columns // 2 else 0
            self._note_lead(word)
        placed = ""
        for part in unbroken(word):
            if start + columns_of(part) >= columns and not (self._begins or self._is_code):
                gap, start = ("\n" + self._indent * " ", self._indent) if part else ("", self._used)
            start = self._used = _behind(start % columns, part, columns)
            self._begins = self._begins and not part
            placed, gap = placed + gap + part, ""
        if newline:
            self._begin_line()
        return placed + newline

    def _begin_line(self) -> None:
        self._used, self._begins, self._leads, self._is_quote = 0, True, True, False
        self._is_code = self._fence != ""

    def _note_lead(self, word: str) -> None:
        """Takes note of a word behind marks alone: one more of them, a fence, or the beginning of the text."""
        bare = word.lstrip(">")
        self._is_quote = self._is_quote or bare != word
        if self._fence and self._quotes_code and not self._is_quote:
            self._fence, self._is_code = "", False
        if self._fence:
            self._leads = not bare and self._quotes_code
            is_inside = self._is_quote == self._quotes_code
            if is_inside and bare.startswith(self._fence) and not bare.strip(self._fence[0]):
                self._fence = ""
        elif match := _FENCE.match(bare):
            self._fence, self._quotes_code = match[1] or match[2], self._is_quote
            self._leads, self._is_code = False, True
        else:
            self._leads = not bare or _MARK.fullmatch(bare) is not None


def wrapped(text: str, columns: int) -> str:
    """A whole safe text, broken as `WordWrap` breaks it."""
    wrap = WordWrap(lambda: columns)
    return wrap.add(text) + wrap.end()


def _behind_blanks(used: int, blanks: str) -> int:
    for blank in blanks:
        used += _TAB_COLUMNS - used % _TAB_COLUMNS if blank == "\t" else 1
    return used


def _behind(used: int, word: str, columns: int) -> int:
    """Columns of the row that a terminal is at behind a word, which may fill several rows."""
    if used + (width := text_width(word)) <= columns:
        return used + width
    for character in word:
        width = character_width(character)
        used = used + width if used + width <= columns else width
    return used
