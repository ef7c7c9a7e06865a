"""Where a line of text may be broken: between words, and between letters where a script has no blanks.

Knows scripts and widths; knows nothing about rows or where a text comes from.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

from localdiff.view.widths import text_width

_OPENING = "([{（［｛「『【〈《〔“‘"
CLOSING = ")]}）］｝」』】〉》〕”’、。，．！？：；…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ!?,.:;"
"""Beside letters that may be separated, no line ends with an opening mark or begins with a closing one."""
_UNSPACED = "\u2e80-\u30ff\u3100-\u312f\u31f0-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Han and kana, as the ranges of a regular expression: there are no blanks between their words."""

_MAY_BREAK = re.compile(
    f"(?<=.)(?=.)(?<![{re.escape(_OPENING)}])(?![{re.escape(CLOSING)}])(?:(?<=[{_UNSPACED}])|(?=[{_UNSPACED}]))"
)


def unbroken(word: str) -> list[str]:
    """The parts of a word between which a line may be broken; a word without break points is the only part."""
    return [word] if word.isascii() else _MAY_BREAK.split(word)


def columns_of(text: str) -> int:
    """Columns of a text on a terminal that joins no characters, or on one that does, whichever are more."""
    return max(cell_len(text), text_width(text))
