"""Folding of long pastes: short in the input line, whole in the message that is sent.

Knows text only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import commonprefix

LONG = 20
"""A paste of more lines than this is folded."""
WIDE = 5_000
"""A paste of more characters than this is folded too, since no screen has room for it. A terminal keeps less of a
paste during a reply: a user who is asked for the rest thus sees where it begins.
"""
_MARK = re.compile(r"\[pasted [0-9,]+ (?:lines|characters)(?:, [0-9]+)?\]")
"""What `Pastes.fold` makes; it may also have been typed."""


class Pastes:
    """The pastes folded into the line being typed."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}
        self._line = ""  # as it was when it was last mended

    def begin(self, text: str = "") -> str:
        """What the next line shows for its initial text; the pastes of the line before are forgotten."""
        self._whole.clear()
        self._line = self.fold(text)
        return self._line

    def fold(self, text: str) -> str:
        """What the line shows for a text: itself, or its length."""
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= LONG and len(text) <= WIDE:
            return text
        length = f"{lines:,} lines" if lines > LONG else f"{len(text):,} characters"
        mark, number = f"[pasted {length}]", 1
        while self._whole.setdefault(mark, text) != text:
            number += 1
            mark = f"[pasted {length}, {number}]"
        return mark

    def unfold(self, line: str) -> str:
        """The line with all pastes unfolded."""
        parts, place = list[str](), 0
        for start, mark in self._marks(line):
            parts += [line[place:start], self._whole[mark]]
            place = start + len(mark)
        return "".join([*parts, line[place:]])

    def mended(self, line: str) -> tuple[str, int] | None:
        """The changed line with its broken mark mended, and the position of its cursor; None if no mark was broken.

        A mark acts as one character: deleting a part of it deletes all of it, and what is typed into it goes after it.
        """
        mended = self._mended(self._line, line)
        self._line = line if mended is None else mended[0]
        return mended

    def _mended(self, before: str, after: str) -> tuple[str, int] | None:
        if not self._whole:  # as in most lines; this is called for every key
            return None
        marks = [(start, start + len(mark)) for start, mark in self._marks(before)]
        if len(list(self._marks(after))) >= len(marks):
            return None
        first = len(commonprefix([before, after]))
        same = len(commonprefix([before[first:][::-1], after[first:][::-1]]))
        last, typed = len(before) - same, after[first : len(after) - same]
        if typed and first != last:
            return None  # another line, from the history
        touched = [(start, end) for start, end in marks if start < last and first < end]
        if not touched:
            return None
        if typed:
            end = touched[0][1]
            return before[:end] + typed + before[end:], end + len(typed)
        first, last = min(first, touched[0][0]), max(last, touched[-1][1])
        return before[:first] + before[last:], first

    def _marks(self, line: str) -> Iterator[tuple[int, str]]:
        """Every mark in a line, and where it starts."""
        for match in _MARK.finditer(line):
            if match[0] in self._whole:
                yield match.start(), match[0]
