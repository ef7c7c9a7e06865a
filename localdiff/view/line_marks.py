"""The marks that lines of Markdown begin with: of quotes, of items of lists, and fences of code.

Knows one word after the other, as they are written; knows nothing about widths. `dialect` has what a parser says of a
whole text.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"(`{3,})[^`]*\Z|(~{3,})")
_ITEM = re.compile(r"[-*+]|[0-9]{1,9}[.)]")


def is_line_mark(word: str) -> bool:
    """Whether a word that begins a line is the mark of quotes or of an item; no word is one, too."""
    bare = word.lstrip(">")
    return not bare or _ITEM.fullmatch(bare) is not None


class LineMarks:
    """Follows the lines of a text.

    Attributes:
        lead: whether the line has nothing yet but marks of quotes and items.
        is_code: whether the line is code, or a fence.
    """

    def __init__(self) -> None:
        self.lead = True
        self.is_code = False
        self._is_quote = False  # whether the line has the mark of a quote
        self._fence = ""  # what closes the block of code
        self._is_quoted_code = False  # whether that block is within a quote, and ends with it
        self._opens = False  # whether this line begins it, unless more backticks are behind those of the fence

    def begin_line(self) -> None:
        """The words that follow are on a new line."""
        self.lead, self._is_quote, self._opens = True, False, False
        self.is_code = self._fence != ""

    def add(self, word: str) -> None:
        """Takes in the next word of a line: behind marks alone it is one more, a fence, or a beginning of text."""
        if not self.lead:
            if self._opens and "`" in word:
                self._fence, self._is_quoted_code, self._opens, self.is_code = "", False, False, False
            return
        bare = word.lstrip(">")
        self._is_quote = self._is_quote or bare != word
        if self._is_quoted_code and not self._is_quote:
            self._fence, self._is_quoted_code, self.is_code = "", False, False
        if self._fence:
            self.lead = not bare and self._is_quoted_code
            is_inside = self._is_quote == self._is_quoted_code
            if is_inside and bare.startswith(self._fence) and not bare.strip(self._fence[0]):
                self._fence, self._is_quoted_code = "", False
        elif match := _FENCE.match(bare):
            self._fence, self._is_quoted_code = match[1] or match[2], self._is_quote
            self.lead, self.is_code, self._opens = False, True, match[1] is not None
        else:
            self.lead = is_line_mark(word)
