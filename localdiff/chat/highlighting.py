"""Code in the colours of its language.

Knows lexers and styles; knows nothing about Markdown or escape codes. Of the terminal's own colours those are used that
most themes make readable on dark and on light ground: neither its greys nor blue, yellow, or what is bright. What need
not stand out is text as any other. A language is never guessed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pygments.lexers import find_lexer_class, get_all_lexers
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, Token
from rich.segment import Segment
from rich.style import Style

MAX_CHARACTERS = 100_000
"""Of a block that is given colours; a longer one would be waited for."""
MAX_LINE = 500
"""Characters of its longest line: some lexers take the square of it."""
MAX_BLANKS = 500
"""Characters between two words, newlines among them: some take the square of these within one match."""
MAX_SECONDS = 1.0
"""After which it is left plain, whatever a lexer takes the square of: a comment that has no end, for one."""

_TEXTS = ("Text only", "Text output")
"""What Pygments calls what has no parts: no language."""
_NAME = re.compile(r"[\w+#-]+")
_PLAIN = Style()
_DIM, _BOLD = Style(dim=True), Style(bold=True)
_RED, _GREEN, _MAGENTA, _CYAN = map(Style.parse, ("red", "green", "magenta", "cyan"))
_STYLES: dict[Any, Style] = {
    Token: _PLAIN,
    Comment: _DIM,
    Comment.Preproc: _CYAN,
    Comment.PreprocFile: _GREEN,
    Keyword: _MAGENTA,
    Keyword.Constant: _CYAN,
    Keyword.Type: _CYAN,
    Operator.Word: _MAGENTA,
    Name.Attribute: _CYAN,
    Name.Builtin: _CYAN,
    Name.Class: _BOLD,
    Name.Decorator: _MAGENTA,
    Name.Exception: _CYAN,
    Name.Function: _BOLD,
    Name.Tag: _MAGENTA,
    Literal.String: _GREEN,
    Literal.Number: _CYAN,
    Generic.Deleted: _RED,
    Generic.Heading: _BOLD,
    Generic.Inserted: _GREEN,
    Generic.Prompt: _DIM,
    Generic.Strong: _BOLD,
    Generic.Subheading: _CYAN,
}


def highlighted(code: str, label: str) -> list[list[Segment]] | None:
    """The lines of a block of code in colours, every character as it was written.

    Args:
        code: safe text.
        label: what is behind the opening fence; it begins with the name of a language.

    Returns:
        None where no language of that name is known, or the code is too long, or would be waited for.
    """
    gaps = re.findall(r"\s+", code)
    if (
        len(code) > MAX_CHARACTERS
        or max(map(len, code.split("\n"))) > MAX_LINE
        or max(map(len, gaps), default=0) > MAX_BLANKS
    ):
        return None
    name = _NAME.search(label)
    lexer = _lexer(name[0].lower()) if name else None
    if lexer is None:
        return None
    lines: list[list[Segment]] = [[]]
    end = time.monotonic() + MAX_SECONDS
    for text, style in _styled(lexer, code, end):
        first, *rest = text.split("\n")
        lines[-1].append(Segment(first, style))
        lines += [[Segment(line, style)] for line in rest]
    shown = "\n".join("".join(segment.text for segment in line) for line in lines)
    return lines[: code.count("\n") + 1] if shown.rstrip("\n") == code.rstrip("\n") else None


def _styled(lexer: Any, code: str, end: float) -> Iterator[tuple[str, Style]]:
    """Parts of the code, one after the other, as far as they come in time; neighbours of one style are one."""
    text, style = "", _PLAIN
    # A line that is not ended is not recognized by some lexers.
    for _, kind, part in lexer.get_tokens_unprocessed(f"{code}\n"):
        if time.monotonic() > end:
            return
        if part.isspace() or (new := _style(kind)) == style:
            text += part
        else:
            yield text, style
            text, style = part, new
    yield text, style


@lru_cache(maxsize=1024)
def _style(kind: Any) -> Style:
    while kind not in _STYLES:
        kind = kind.parent
    return _STYLES[kind]


@lru_cache(maxsize=64)
def _lexer(name: str) -> Any:
    """What knows a language by one of its names; None where nothing does."""
    # Not by `get_lexer_by_name`: it would look for an unknown name in everything that is installed.
    for lexer, names, _, _ in get_all_lexers(plugins=False):
        if name in names and lexer not in _TEXTS:
            return find_lexer_class(lexer)()
    return None
