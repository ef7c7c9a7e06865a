"""Code in the colours of its language.

Knows lexers and styles; knows nothing about Markdown or escape codes. Uses those of the terminal's own colours that
most themes make readable on dark and light backgrounds: no grey, blue, yellow or bright colour. What need not stand
out is plain text. A language is never guessed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pygments.lexers import find_lexer_class, get_all_lexers
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme

MAX_LINE = 500
"""Maximum characters of a line: some lexers take time quadratic in it."""
MAX_BLANKS = 500
"""Maximum blanks between two words, newlines included: some lexers take time quadratic in them within one match."""
MAX_SECONDS = 1.0
"""Seconds after which a block stays plain, be it very long, or its lexer quadratic, as in an unclosed comment."""

_TEXTS = ("Text only", "Text output")
"""Pygments' lexers of plain text, which is no language."""
_NAME = re.compile(r"[\w+#-]+")
_DIM, _BOLD = Style(dim=True), Style(bold=True)
_RED, _GREEN, _MAGENTA, _CYAN = map(Style.parse, ("red", "green", "magenta", "cyan"))
_STYLES = {
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
_THEME = ANSISyntaxTheme(_STYLES)


def highlighted(code: str, label: str) -> list[list[Segment]] | None:
    """The lines of a block of code in colours, every character as it was written.

    Args:
        code: safe text.
        label: the text after the opening fence; it begins with the name of a language.

    Returns:
        None where no language of that name is known, or the code takes too long.
    """
    gaps = re.findall(r"\s+", code)
    if max(map(len, code.split("\n"))) > MAX_LINE or max(map(len, gaps), default=0) > MAX_BLANKS:
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
    """Parts of the code in order, as far as they come in time; neighbours of the same style are merged."""
    text, style = "", Style()
    # Some lexers do not recognize a line without a line end.
    for _, kind, part in lexer.get_tokens_unprocessed(f"{code}\n"):
        if time.monotonic() > end:
            return
        if part.isspace() or (new := _THEME.get_style_for_token(kind)) == style:
            text += part
        else:
            yield text, style
            text, style = part, new
    yield text, style


@lru_cache(maxsize=64)
def _lexer(name: str) -> Any:
    """The lexer of a language, by one of its names; None if there is none."""
    # Not `get_lexer_by_name`, which would search all installed packages for an unknown name.
    for lexer, names, _, _ in get_all_lexers(plugins=False):
        if name in names and lexer not in _TEXTS:
            return find_lexer_class(lexer)()
    return None
