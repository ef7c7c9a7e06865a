"""What is not markup in the Markdown of models, and how a parser is kept from taking it for markup.

Multiplication signs, names such as `__init__`, stars in paths, and everything in a formula become placeholders, which
no safe text has, until everything is laid out. Knows nothing about blocks or about how anything looks.
"""

from __future__ import annotations

import re

JOINT = "\u200b"
"""Has no width. It goes on both sides of emphasis marks beside a letter of a script without blanks; without it, such
marks would only count outside all punctuation."""

_WIDE = "\u2e80-\uffef\U00020000-\U0003ffff"
_LETTER = rf"[^\W_{_WIDE}]"
_TIMES = rf"(?<={_LETTER})\*(?={_LETTER})"
_NAME = r"(?<!\w)__[a-z]+(?:_[a-z]+)*__(?!\w)"
_PATH = r"(?<=/)\*{1,2}(?=[./\s])"

# Formulas are bounded: otherwise the end of an unclosed one would be searched for in the whole text, again and again.
_LINES = r"(?:[^$`\n]|\n(?![ \t]*\n|[ \t]*~~~)){1,1000}?"
# One of several lines begins a line, or follows an item's mark: `$$` after the last words of an item says it is dear.
_BEGINS = r"(?:(?<=^\$\$)|(?<=[\s>][ \t]\$\$)|(?<=\d[.)] \$\$)|(?![ \t]*\n))"
_BETWEEN_TWO_DOLLARS = rf"(?<![\\$])\$\${_BEGINS}{_LINES}\$\$(?!\$)"
_IN_BRACKETS = rf"\\\[{_LINES}\\\]"
# Not one price or two: no blank just within its dollars, no letter before them, and no digit after them; nor a blank
# and a digit, as in `US$ 7`, if the formula begins with a digit itself.
_FORMULA = r"[^$`\n]{0,300}(?<![\s\\])\$(?!\d)"
_BETWEEN_DOLLARS = rf"(?<![\\A-Za-z])\$(?:(?=\d){_FORMULA}(?! \d)|(?![\s$\d]){_FORMULA})"
_IN_PARENTHESES = r"\\\([^$`\n]{1,300}?\\\)"

_VERBATIM = re.compile(
    "|".join((_TIMES, _NAME, _PATH, _BETWEEN_TWO_DOLLARS, _IN_BRACKETS, _BETWEEN_DOLLARS, _IN_PARENTHESES)),
    re.MULTILINE,
)
_EMPHASIS = re.compile(rf"(?<=[{_WIDE}])\*{{1,3}}(?=[^\s*])|(?<=[^\s*])\*{{1,3}}(?=[{_WIDE}])")
_PLACEHOLDERS = {ord(mark): 0xFDD0 + index for index, mark in enumerate("*_~[]-+>#")}
_WRITTEN = {code: mark for mark, code in _PLACEHOLDERS.items()} | {ord(JOINT): None}


def with_placeholders(text: str) -> str:
    """Safe text to be parsed; it has the same lines."""
    text = _VERBATIM.sub(lambda match: match[0].translate(_PLACEHOLDERS), text)
    return _EMPHASIS.sub(rf"{JOINT}\g<0>{JOINT}", text)


def as_written(text: str) -> str:
    """Laid-out text, with placeholders turned back into what was written."""
    return text.translate(_WRITTEN)
