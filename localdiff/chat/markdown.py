"""Markdown rendering of finished paragraphs for a terminal.

Knows Markdown as models write it: line breaks stay, and no text vanishes, be it HTML, LaTeX or a definition; what
rendering would lose is printed as it is. Knows nothing about where the text comes from. Noise is never rendered,
because half-formed markup makes a page jump.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import pairwise
from typing import Any, ClassVar

from rich.console import Console
from rich.markdown import Markdown
from rich.theme import Theme

from localdiff.chat.markdown_blocks import ELEMENTS
from localdiff.chat.verbatim import JOINT, as_written, with_placeholders
from localdiff.view.dialect import blocks, nested, parser
from localdiff.view.sanitize import safe_text
from localdiff.view.word_wrap import wrapped

_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.code": "cyan",
        "markdown.code_block": "cyan",
        "markdown.block_quote": "italic",
        "markdown.link": "underline",
        "markdown.link_url": "default",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
DRAWN = "▌─"
"""Marks of quotes and rules of tables, where they need not be ASCII."""
_SGR = re.compile(r"\x1b\[[0-9;]*m")
_NARROWEST = 8
_BREAK = re.compile(r"(?<! ) *<br ?/?> *", re.IGNORECASE)


class _Markdown(Markdown):
    """The Markdown dialect of models."""

    elements: ClassVar[Any] = ELEMENTS

    def __init__(self, text: str, *, color: bool) -> None:
        super().__init__("", hyperlinks=False)
        text = nested(text)
        self.lines = text.split("\n")
        # Without escape codes, only its marks show that a text is struck out, and a language would look like code.
        self.parsed = (parser() if color else parser().disable("strikethrough")).parse(text)
        self.hidden = "" if color else "".join(token.info for token in self.parsed if token.type == "fence")
        for before, token in pairwise(self.parsed):
            children = token.children or []
            for start, label, end in zip(children, children[1:], children[2:], strict=False):
                if start.type == "link_open" and start.attrs["href"] in (label.content, f"mailto:{label.content}"):
                    self.hidden += str(start.attrs["href"])
                    start.type = end.type = "text"  # an address that is its own label is shown once
            for child in children:
                child.content = child.content.replace(JOINT, "")  # otherwise a line could be broken there
                if child.type == "text" and before.type in ("td_open", "th_open"):
                    self.hidden += "".join(_BREAK.findall(child.content))
                    child.content = _BREAK.sub("\n", child.content)

    @property
    def loses_cells(self) -> bool:
        """Whether a row has more cells than its table has columns; the extra cells would vanish."""
        cells: Counter[int] = Counter()
        for before, token in pairwise(self.parsed):
            if before.type == "td_open" and token.map is not None:
                cells[token.map[0]] += _letters(token.content)
        return any(letters < _letters(self.lines[line]) for line, letters in cells.items())


class _AsciiFile(io.StringIO):
    encoding = "ascii"


def render(text: str, columns: int, *, color: bool, unicode: bool = True) -> str:
    """A passage as safe lines for a terminal of `columns` columns, ending with a newline.

    Args:
        text: whole paragraphs; a blank line at their end is kept.
        columns: of the terminal; no rendered line reaches the last one, except for code and addresses that are longer.
        color: whether to use escape codes.
        unicode: whether the terminal can show `DRAWN`; otherwise ASCII is used.
    """
    safe = safe_text(text)
    shown = _laid_out(safe, columns, color=color, unicode=unicode)
    if shown is None:
        lines = safe.splitlines(keepends=True)
        starts = [block.start for block in blocks(with_placeholders(safe))[1:]]
        starts = [start for start in starts if not lines[start - 1].strip()] or starts
        if starts:
            parts = ["".join(lines[a:b]) for a, b in pairwise([0, *starts, len(lines)])]
            return "".join(render(part, columns, color=color, unicode=unicode) for part in parts)
        shown = wrapped(safe, columns)
        return shown if shown.endswith("\n") else shown + "\n"
    end = "\n\n" if re.search(r"\n[ \t]*\n\s*\Z", safe) else "\n"
    return shown + end if shown else ""


def _laid_out(safe: str, columns: int, *, color: bool, unicode: bool) -> str | None:
    """A passage as lines; None if any of its letters would be lost."""
    document = _Markdown(with_placeholders(safe), color=color)
    if document.loses_cells:
        return None
    file = io.StringIO() if unicode else _AsciiFile()
    console = Console(
        file=file,
        width=max(columns - 1, _NARROWEST),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        theme=_THEME,
        _environ={},
    )
    console.print(document, crop=False)
    lines = [_without_blanks_behind(line) for line in file.getvalue().split("\n")]
    shown = as_written("\n".join(lines)).strip("\n")
    return None if _letters(_SGR.sub("", shown)) < _letters(safe) - _letters(document.hidden) else shown


def _without_blanks_behind(line: str) -> str:
    """A line without its trailing padding, which would be copied with it."""
    bare = re.sub(r"(?<! )[ ]+((?:\x1b\[[0-9;]*m)*)\Z", r"\1", line)
    return bare if _SGR.sub("", bare).strip() else ""


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)
