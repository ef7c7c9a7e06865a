"""What is no markup in the Markdown of models, and what keeps a parser from taking it for some.

Multiplication signs, names such as `__init__`, stars of paths, and everything in a formula get placeholders, which no
safe text has, until all is laid out. Knows nothing about blocks or about how anything looks.
"""

from __future__ import annotations

import re

JOINT = "\u200b"
"""Without width; on both sides of marks of emphasis beside a letter of a script without blanks, where they would have
to stand outside of all punctuation otherwise."""

_WIDE = "\u2e80-\uffef\U00020000-\U0003ffff"
_LETTER = rf"[^\W_{_WIDE}]"
_TIMES = rf"(?<={_LETTER})\*(?={_LETTER})"
_NAME = r"(?<!\w)__[a-z]+(?:_[a-z]+)*__(?!\w)"
_PATH = r"(?<=/)\*{1,2}(?=[./\s])"

# Formulas are bounded, or the end of one that has none would be looked for in the whole text, again and again.
_LINES = r"(?:[^$`\n]|\n(?![ \t]*\n|[ \t]*~~~)){1,1000}?"
# One of lines begins a line, or is behind the mark of an item: `$$` behind the last words of an item says what is dear.
_BEGINS = r"(?:(?<=^\$\$)|(?<=[\s>][ \t]\$\$)|(?<=\d[.)] \$\$)|(?![ \t]*\n))"
_BETWEEN_TWO_DOLLARS = rf"(?<![\\$])\$\${_BEGINS}{_LINES}\$\$(?!\$)"
_IN_BRACKETS = rf"\\\[{_LINES}\\\]"
# Neither a price nor two: no blank is within its dollars, no letter before them, and no digit behind them, nor a blank
# and a digit, as in `US$ 7`, where it begins with one itself.
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
    """What has been laid out, without placeholders."""
    return text.translate(_WRITTEN)
