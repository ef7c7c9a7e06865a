"""The Markdown that models write: which of its constructs are recognized, and the blocks of a text.

Knows markdown-it; knows nothing about how anything looks. Line breaks stay, with the blanks behind them, and what would
vanish when it is rendered, be it HTML, LaTeX or a definition, is text. So is a backslash, except before marks that it
keeps from being markup.
"""

from __future__ import annotations

from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

_ESCAPED = ("\\*", "\\_", "\\~", "\\`", "\\#", "\\$")
"""Escapes that models write; others are those of LaTeX and of paths."""


class Block(NamedTuple):
    """A paragraph, a list, a fence or the like that no other contains: its type and its lines."""

    type: str
    start: int
    end: int


class _Parser(MarkdownIt):
    """A parser that leaves addresses as they were written."""

    def normalizeLink(self, url: str) -> str:
        return url


def parser() -> MarkdownIt:
    """A parser of the dialect."""
    markdown = _Parser("commonmark", {"html": False}).enable(["strikethrough", "table"])
    markdown.inline.ruler.at("escape", _escape)
    markdown.inline.ruler.at("newline", _newline)
    return markdown.disable(["image", "autolink", "entity", "reference", "lheading", "html_block", "html_inline"])


def _escape(state: StateInline, silent: bool) -> bool:
    """A rule of markdown-it: one of the escapes, where it is at."""
    if not state.src.startswith(_ESCAPED, state.pos):
        return False
    if not silent:
        state.pending += state.src[state.pos + 1]
    state.pos += 2
    return True


def _newline(state: StateInline, silent: bool) -> bool:
    """A rule of markdown-it: a line break, behind which blanks stay."""
    if state.src[state.pos] != "\n":
        return False
    if not silent:
        state.pending = state.pending.rstrip(" ")
        state.push("hardbreak", "br", 0)
    state.pos += 1
    return True


def blocks(text: str) -> list[Block]:
    """The blocks of a text, in order; blank lines may be between them, or at the end of one."""
    # A carriage return alone would count as the end of a line.
    tokens = parser().disable("inline").parse(text.replace("\r", " "))
    return [
        Block(token.type.removesuffix("_open"), *token.map)
        for token in tokens
        if token.level == 0 and token.map is not None
    ]
