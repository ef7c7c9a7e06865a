"""Folding of long pastes: short in the input line, whole in the message that is sent.

Knows text only.
"""

from __future__ import annotations

LONG = 20
"""A paste of more lines than this is folded."""


class Pastes:
    """The pastes folded into the line being typed."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """What the line shows for a text: itself, or its length."""
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= LONG:
            return text
        mark, number = f"[pasted {lines} lines]", 1
        while self._whole.setdefault(mark, text) != text:
            number += 1
            mark = f"[pasted {lines} lines, {number}]"
        return mark

    def unfold(self, line: str) -> str:
        """The line with all pastes unfolded. A fold that was edited inside its brackets stays as it is."""
        parts, place = list[str](), 0
        while place < len(line):
            mark = next((mark for mark in self._whole if line.startswith(mark, place)), None)
            parts.append(line[place] if mark is None else self._whole[mark])
            place += 1 if mark is None else len(mark)
        return "".join(parts)

    def clear(self) -> None:
        """Forget everything; a new line begins."""
        self._whole.clear()
