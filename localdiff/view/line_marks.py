"""The marks that lines of Markdown begin with: quote marks, list item marks and code fences.

Knows words one after the other, as they are written; knows nothing about widths. `dialect` parses whole texts.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"(`{3,})[^`]*\Z|(~{3,})")
_MARK = r">*(?:[-*+]|[0-9]{1,9}[.)])?"
_LINE_MARK = re.compile(_MARK)
_LEADING_MARKS = re.compile(f"(?:{_MARK} +)*")


def is_line_mark(word: str) -> bool:
    """Whether a word that begins a line is a quote mark or an item mark; an empty word counts, too."""
    return _LINE_MARK.fullmatch(word) is not None


def columns_of_marks(line: str) -> int:
    """Columns of the blanks and marks that a line begins with, each mark with the blanks after it."""
    match = _LEADING_MARKS.match(line)
    return match.end() if match else 0


class LineMarks:
    """Follows the lines of a text.

    Attributes:
        lead: whether the line so far has only quote and item marks.
        is_code: whether the line is code, or a fence.
    """

    def __init__(self) -> None:
        self.lead = True
        self.is_code = False
        self._is_quote = False  # whether the line has a quote mark
        self._fence = ""  # what closes the block of code
        self._is_quoted_code = False  # whether that block is within a quote, and ends with the quote
        self._opens = False  # whether this line opens it, unless more backticks follow the fence's

    def begin_line(self) -> None:
        """The words that follow are on a new line."""
        self.lead, self._is_quote, self._opens = True, False, False
        self.is_code = self._fence != ""

    def add(self, word: str) -> None:
        """Takes the next word of a line; after marks alone it is another mark, a fence, or the start of text."""
        if self.lead:
            self._add_after_marks(word)
        elif self._opens and "`" in word:  # what seemed a fence is code within a line
            self._fence, self._opens, self.is_code = "", False, False

    def _add_after_marks(self, word: str) -> None:
        bare = word.lstrip(">")
        self._is_quote = self._is_quote or bare != word
        if self._is_quoted_code and not self._is_quote:
            self._fence, self.is_code = "", False
        if self._fence:
            self.lead = not bare and self._is_quoted_code
            is_inside = self._is_quote == self._is_quoted_code
            if is_inside and bare.startswith(self._fence) and not bare.strip(self._fence[0]):
                self._fence = ""
        elif match := _FENCE.match(bare):
            self._fence, self._is_quoted_code = match[1] or match[2], self._is_quote
            self.lead, self.is_code, self._opens = False, True, match[1] is not None
        else:
            self.lead = is_line_mark(word)
