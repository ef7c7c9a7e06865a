"""How blocks of Markdown look on a terminal: paragraphs, headings, code, quotes, lists, rules and tables.

Knows elements of rich, widths and blank lines; knows nothing about escape codes or where a text comes from. Lines are
broken between words, and between characters where a script has no blanks. Nothing is cropped: code, and words longer
than a line, such as addresses, are left for the terminal to wrap, so that they can be copied whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from rich import box
from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    ListElement,
    ListItem,
    Markdown,
    MarkdownElement,
    Paragraph,
    TableElement,
)
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from localdiff.chat.highlighting import highlighted
from localdiff.chat.verbatim import JOINT, as_written
from localdiff.view.line_breaks import columns_of, unbroken

_GAP = 2
"""Blanks between the columns of a table."""
_READABLE = 10
"""Width of a column below which it is not narrowed."""
_ASCII_BOX = box.Box(str(box.SIMPLE).replace("─", "-"), ascii=True)


def wrapped(text: Text, columns: int) -> Text:
    """A text with line breaks, so that no line is wider than `columns`, except for a word longer than that."""
    lines: list[Text] = []
    for line in text.split(allow_blank=True):
        line.expand_tabs()
        lines += line.divide(_breaks(line.plain, columns))
    for line in lines:
        line.rstrip()
    return Text("\n", justify=text.justify).join(lines)


def _uncropped(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _breaks(line: str, columns: int) -> list[int]:
    """Positions at which a line is broken."""
    breaks: list[int] = []
    begin = 0
    for start, end in _units(line, columns):
        if start > begin and columns_of(line[begin:end]) > columns:
            breaks.append(start)
            begin = start
    return breaks


def _units(line: str, columns: int) -> Iterator[tuple[int, int]]:
    """Start and end of every unit that is not broken; only ASCII units may be wider than a line."""
    for word in re.finditer(r"\S+", line):
        begin = word.start()
        for part in unbroken(word[0]):
            for chunk in [part] if part.isascii() else chop_cells(part, max(columns, 2)):
                yield begin, begin + len(chunk)
                begin += len(chunk)


def laid_out(elements: Any, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
    """The lines of blocks below each other, with a blank line between them where one was written."""
    lines: list[list[Segment]] = []
    for element in elements:
        if lines and element.spaced:
            lines.append([])
        lines += Segment.split_lines(console.render(element, options))
    return lines


class _Block(MarkdownElement):
    """A block of any kind.

    Attributes:
        spaced: whether a blank line was written before it.
    """

    spaced = False

    @classmethod
    def create(cls, markdown: Any, token: Any) -> Self:
        element: Self = super().create(markdown, token)  # type: ignore[assignment]  # rich does not say which it makes
        if token.map is not None and token.map[0] > 0:
            element.spaced = not markdown.lines[token.map[0] - 1].strip(" \t\r>")
        return element


class _Paragraph(_Block, Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _uncropped(wrapped(self.text, options.max_width))


class _Heading(_Block, Heading):
    """A heading on the left, whatever its level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _uncropped(wrapped(self.text, options.max_width))


class _Code(_Block, CodeBlock):
    """Code as it was written, so that it can be copied: no frame, no padding, no wrapping.

    Attributes:
        label: the text after the opening fence, mostly the language; shown on a line of its own where that can be dim.
    """

    label = ""

    @classmethod
    def create(cls, markdown: Any, token: Any) -> Self:
        element = super().create(markdown, token)
        element.label = as_written(token.info).strip()
        return element

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = as_written(str(self.text)).rstrip("\n")
        rows = code.split("\n")
        lines = None
        if console.color_system is not None and self.label:
            yield _uncropped(wrapped(Text(self.label, "dim"), options.max_width))
            lines = highlighted(code, self.label)
        style = console.get_style("markdown.code_block")
        for row, line in zip(rows, lines or [[Segment(row, style)] for row in rows], strict=True):
            yield from line
            if row.endswith((" ", "\t")):
                yield Segment(JOINT)  # otherwise the blanks would be taken for padding
            yield Segment.line()


class _Quote(_Block, BlockQuote):
    """A quote, without rich's column of blanks after it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = Segment("| " if options.ascii_only else "▌ ", self.style)
        for line in laid_out(self.elements, console, _narrower(options, 2)):
            yield mark
            yield from Segment.apply_style(line, self.style)
            yield Segment.line()


class _Rule(_Block, HorizontalRule):
    """A rule without a blank line of its own."""

    new_line: ClassVar[bool] = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="markdown.hr", characters="-")


class _Item(_Block, ListItem):
    """A list item; `number` and `delimiter` are empty in a list without numbers."""

    number = delimiter = ""

    @classmethod
    def create(cls, markdown: Any, token: Any) -> Self:
        item = super().create(markdown, token)
        if token.info:
            item.number, item.delimiter = token.info, token.markup
        return item


class _List(_Block, ListElement):
    """A list with its numbers as written, and without rich's column of blanks before it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        marks = _marks(self.items)  # type: ignore[arg-type]  # what `elements` says they are
        for index, (item, mark) in enumerate(zip(self.items, marks, strict=True)):
            if index and item.spaced:  # type: ignore[attr-defined]
                yield Segment.line()
            lines = laid_out(item.elements, console, _narrower(options, len(mark)))
            for number, line in enumerate(lines or [[]]):
                yield Segment(" " * len(mark) if number else mark)
                yield from line
                yield Segment.line()


def _marks(items: Sequence[_Item]) -> list[str]:
    """The mark before each item; a repeated number counts up, as it does on a page."""
    marks: list[str] = []
    same = 0
    for index, item in enumerate(items):
        same = same + 1 if index and item.number == items[index - 1].number else 0
        number = str(int(item.number) + same) if same and item.number else item.number
        marks.append(f"{number}{item.delimiter} " if number else "- ")
    return marks


class _Table(_Block, TableElement):
    """A table whose columns are at least as wide as their words; a list if that is too wide."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header is not None and self.header.row is not None
        parts = [self.header.row, *(self.body.rows if self.body else ())]
        head, *rows = [[cell.content for cell in row.cells] for row in parts]
        for cell in head:
            cell.stylize("markdown.table.header")
        widths = _widths([head, *rows], options.max_width)
        if widths is None:
            yield from _listed(head, rows, options.max_width)
            return
        table = Table(
            box=_ASCII_BOX if options.ascii_only else box.SIMPLE,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            style="markdown.table.border",
        )
        for cell, width in zip(head, widths, strict=True):
            table.add_column(wrapped(cell, width), width=width)
        for row in rows:
            table.add_row(*map(wrapped, row, widths))
        yield table


def _widths(rows: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """The widths of a table's columns: the widest are narrowed; None if a word would have to be broken."""
    widths, least = [], []
    for column in zip(*rows, strict=True):
        lines = [line for cell in column for line in cell.plain.split("\n")]
        words = [line[start:end] for line in lines for start, end in _units(line, len(line) * 2)]
        widths.append(max(map(columns_of, lines)))
        least.append(max(map(columns_of, words), default=0))
        least[-1] = max(least[-1], min(widths[-1], _READABLE))
    room -= _GAP * (len(widths) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max((index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _listed(head: Sequence[Text], rows: Sequence[Sequence[Text]], columns: int) -> Iterator[Text]:
    """The cells of each row below each other, each after its column's name; the names alone if there are no rows."""
    for index, row in enumerate(rows or [[Text()] * len(head)]):
        if index:
            yield Text()
        for name, cell in zip(head, row, strict=True):
            lines = wrapped(Text.assemble(name, ": " if name.plain else "", cell), columns - 2)
            yield _uncropped(Text("\n  ").join(lines.split()))


def _narrower(options: ConsoleOptions, columns: int) -> ConsoleOptions:
    return options.update(width=max(options.max_width - columns, 1))


ELEMENTS: dict[str, type[MarkdownElement]] = {
    **Markdown.elements,
    "paragraph_open": _Paragraph,
    "heading_open": _Heading,
    "fence": _Code,
    "code_block": _Code,
    "blockquote_open": _Quote,
    "hr": _Rule,
    "bullet_list_open": _List,
    "ordered_list_open": _List,
    "list_item_open": _Item,
    "table_open": _Table,
}
"""Markdown token → the element that shows it."""
