"""The Markdown that models write: which of its constructs are recognized, and the blocks of a text.

Knows markdown-it; knows nothing about how anything looks. Line breaks stay, with the blanks after them, and what
would vanish in rendering, be it HTML, LaTeX or a definition, is text. So is a backslash, except before marks that it
keeps from being markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_ESCAPED = ("\\*", "\\_", "\\~", "\\`", "\\#", "\\$")
"""Escapes that models write; other backslashes belong to LaTeX and paths."""
_NUMBER = re.compile(r"( *)\d{1,9}[.)] +")
_TAB = re.compile(r" *\t")


class Block(NamedTuple):
    """A top-level block, such as a paragraph, a list or a fence: its type and its lines.

    Attributes:
        items: where a list's items begin, except for the first one and those that repeat the previous number.
    """

    type: str
    start: int
    end: int
    items: tuple[int, ...] = ()


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
    """A rule of markdown-it: one of the escapes at the current position."""
    if not state.src.startswith(_ESCAPED, state.pos):
        return False
    if not silent:
        state.pending += state.src[state.pos + 1]
    state.pos += 2
    return True


def _newline(state: StateInline, silent: bool) -> bool:
    """A rule of markdown-it: a line break, after which blanks stay."""
    if state.src[state.pos] != "\n":
        return False
    if not silent:
        state.pending = state.pending.rstrip(" ")
        state.push("hardbreak", "br", 0)
    state.pos += 1
    return True


def nested(text: str) -> str:
    """The text with bullets below a numbered item nested in it, even if they were indented less than its words.

    Models indent them by two or three columns, whatever the width of the number.
    """
    return _nested(text, _block_tokens(text))


def blocks(text: str) -> list[Block]:
    """The blocks of a text, in order; blank lines may be between them, or at the end of one."""
    # A carriage return alone would count as the end of a line.
    text = text.replace("\r", " ")
    tokens = _block_tokens(text)
    if (inner := _nested(text, tokens)) is not text:
        tokens = _block_tokens(inner)
    found: list[Block] = []
    number: str | None = None
    for token in tokens:
        if token.level == 0 and token.map is not None:
            start, end = token.map
            found.append(Block(token.type.removesuffix("_open"), start, end))
            number = None
        elif token.level == 1 and token.type == "list_item_open" and token.map is not None:
            if number is not None and (number != token.info or not number):
                found[-1] = found[-1]._replace(items=(*found[-1].items, token.map[0]))
            number = token.info
    return found


def _block_tokens(text: str) -> list[Token]:
    return parser().disable("inline").parse(text)


def _nested(text: str, tokens: Sequence[Token]) -> str:
    """See `nested`; the same object if nothing changes."""
    lines = text.split("\n")
    is_same = True
    number: re.Match[str] | None = None  # the previous item's mark, if the previous block is a numbered list
    for token in tokens:
        if token.level == 1 and token.type == "list_item_open" and token.map is not None:
            number = _NUMBER.match(lines[token.map[0]])
        elif token.level == 0 and token.map is not None:
            if token.type == "bullet_list_open" and number is not None:
                part = slice(*token.map)
                indent = len(lines[part.start]) - len(lines[part.start].lstrip(" "))
                if number.end(1) + 2 <= indent < number.end() and not any(map(_TAB.match, lines[part])):
                    lines[part] = [" " * (number.end() - indent) + line for line in lines[part]]
                    is_same = False
            number = None
    return text if is_same else "\n".join(lines)
