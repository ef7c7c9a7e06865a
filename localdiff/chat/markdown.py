"""Markdown rendering of finished paragraphs for a terminal.

Knows Markdown as models write it: line breaks stay, and nothing that is written vanishes, be it HTML, LaTeX or a
definition; what rendering would lose is printed as it is. Knows nothing about where the text comes from. Noise is never
rendered, because half-formed markup makes a page jump.
"""

from __future__ import annotations

import io
import re
from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown
from rich.segment import Segment
from rich.style import Style
from rich.theme import Theme

from localdiff.view.dialect import parser
from localdiff.view.sanitize import safe_text

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
_SGR = re.compile(r"\x1b\[[0-9;]*m")
_NARROWEST = 8

# A multiplication sign, not emphasis. Its placeholder while the rest is parsed cannot occur in safe text.
_TIMES = re.compile(r"(?<=[^\W_])\*(?=[^\W_])")
_STAND_IN = "\ufdd0"


class _Heading(Heading):
    """A heading on the left, whatever its level."""

    LEVEL_ALIGN: ClassVar[Any] = {}


class _Code(CodeBlock):
    """Code as it was written, so that it can be copied: no frame, no padding, no wrapping."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style("markdown.code_block", default=Style())
        for line in str(self.text).rstrip("\n").split("\n"):
            yield Segment(line, style)
            yield Segment.line()


class _Item(ListItem):
    """A list item with its number as written, and without a column of blanks before it."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._behind("- ", console, options)

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(f"{last_number}. ")
        yield from self._behind(f"{number}. ".rjust(width), console, options)

    def _behind(self, mark: str, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - len(mark), 1)
        for index, line in enumerate(console.render_lines(self.elements, options.update(width=room), pad=False)):
            yield Segment(" " * len(mark) if index else mark)
            yield from line
            yield Segment.line()


class _Markdown(Markdown):
    """The Markdown dialect of models."""

    elements: ClassVar[Any] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "list_item_open": _Item,
    }

    def __init__(self, text: str, *, strikes: bool) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = text
        self.parsed = (parser() if strikes else parser().disable("strikethrough")).parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"

    @property
    def hidden(self) -> str:
        """Text that is written and not shown: the languages of code blocks."""
        return "".join(token.info for token in self.parsed if token.type == "fence")


def render(text: str, columns: int, *, color: bool) -> str:
    """A passage as lines for a terminal of `columns` columns; made safe, and ending with a newline.

    Args:
        text: whole paragraphs; a blank line at their end is kept.
        columns: of the terminal; no line rendered here reaches the last one.
        color: whether to use escape codes.
    """
    safe = safe_text(text)
    # Without escape codes nothing but its marks says that a text is deleted.
    document = _Markdown(_TIMES.sub(_STAND_IN, safe), strikes=color)
    file = io.StringIO()
    console = Console(
        file=file,
        width=max(columns - 1, _NARROWEST),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        theme=_THEME,
        _environ={},
    )
    console.print(document, crop=False)
    lines = [_without_blanks_behind(line) for line in file.getvalue().replace(_STAND_IN, "*").split("\n")]
    laid_out = "\n".join(lines).strip("\n")
    if _letters(_SGR.sub("", laid_out)) < _letters(safe) - _letters(document.hidden):
        return safe if safe.endswith("\n") else safe + "\n"
    end = "\n\n" if re.search(r"\n[ \t]*\n\s*\Z", safe) else "\n"
    return laid_out + end if laid_out else ""


def _without_blanks_behind(line: str) -> str:
    """A line without its trailing padding, which would be copied with it."""
    bare = re.sub(r"[ ]+((?:\x1b\[[0-9;]*m)*)\Z", r"\1", line)
    return bare if _SGR.sub("", bare).strip() else ""


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)
