"""Cells of texts and token ids, at each stage of certainty.

Knows pieces, special tokens, bytes and newlines; knows nothing about canvases, rows or terminals. A cell is the
smallest thing that the flow moves to another row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from localdiff.view.line_breaks import CLOSING
from localdiff.view.palette import LEANING, NOISE, SETTLED, Palette
from localdiff.view.pieces import Pieces
from localdiff.view.sanitize import MISSING, safe_piece, safe_text
from localdiff.view.style import PLAIN, SPACE, Span, Style, blank
from localdiff.view.widths import (
    BASE_FOR_MARKS,
    ascii_text,
    character_width,
    clip,
    is_mark,
    settled_text,
    text_width,
    uncertain_text,
)

CHUNK_COLUMNS = 8
MAX_SIGN_NAME = 14
MAX_PIECE_CHARACTERS = 256

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
_WORDS = re.compile(r" ?[^ ]+| +")
_SPACE_MARK = "\u2581"


class Cell(NamedTuple):
    """One unbreakable bit of the page.

    Attributes:
        spans: what is drawn, perhaps after a blank, which is left out where the flow starts a row with this cell.
        columns: those of the spans.
        soft: whether a row may end before it.
        breaks: number of rows that end after it.
        bare: what is drawn instead directly after a letter: a mark without the base that was lent to it.
    """

    spans: tuple[Span] | tuple[Span, Span]
    columns: int
    soft: bool
    breaks: int
    bare: Span | None = None

    @property
    def span(self) -> Span:
        """What is drawn wherever the cell is."""
        return self.spans[-1]

    @property
    def lead(self) -> int:
        """Columns of the blank before it, 0 or 1."""
        return len(self.spans) - 1


def byte_of(piece: str) -> int | None:
    """The byte that a byte piece such as `<0x1B>` stands for, or None for any other piece."""
    match = _BYTE.match(piece)
    return int(match[1], 16) if match else None


def sign_name(piece: str) -> str:
    """The short name of a special token: `<|channel>` gives `channel`, its closing twin `/channel`."""
    inner = uncertain_text(safe_piece(piece)).strip("<>").strip()
    closing = inner.endswith("|") and not inner.startswith("|")
    return ("/" if closing else "") + clip(inner.strip("|") or "special", MAX_SIGN_NAME)


class CellMaker:
    """Makes cells in one palette.

    Attributes:
        noise: the cell of a position about which nothing is known: always equal, so noise never moves the page.
        end: the sign that nothing follows.
    """

    def __init__(self, *, pieces: Pieces, palette: Palette) -> None:
        self._pieces = pieces
        self._palette = palette
        noise = palette.glyphs.noise
        self.noise = _spaced(Span(noise, text_width(noise), palette.stages[NOISE]))
        self.end = self._sign_cell("end")

    def token(self, token: int, stage: int, changed: bool) -> tuple[Cell, ...] | None:
        """The cells of a token, underlined if it has `changed`; None for a byte piece, which is not text by itself."""
        piece = self._pieces.piece(token)
        if self._pieces.is_special(token):
            return (self._sign_cell(sign_name(piece)),)
        if byte_of(piece) is not None:
            return None
        return self.text(piece.replace(_SPACE_MARK, " "), stage, changed)

    def byte_run(self, tokens: Sequence[int], stages: Sequence[int], changed: Sequence[bool]) -> list[tuple[Cell, ...]]:
        """The cells of adjacent byte pieces, one entry per position.

        Bytes that make up one character are drawn as that character on the first of them, as uncertain as
        the least certain of them, and as nothing on the others, so that it does not flicker between the character and
        fragments.
        """
        data = bytes(byte_of(self._pieces.piece(token)) or 0 for token in tokens)
        cells: list[tuple[Cell, ...]] = []
        while len(cells) < len(data):
            start = len(cells)
            length, character = _first_character(data[start : start + 4])
            part = slice(start, start + length)
            cells.append(self.text(character or MISSING, max(stages[part]), any(changed[part])))
            cells += [()] * (length - 1)
        return cells

    def text(self, piece: str, stage: int, changed: bool) -> tuple[Cell, ...]:
        """The cells of the text of one piece."""
        style = self._palette.stages[stage]
        if changed:
            style = style.underlined()
        cells: list[Cell] = []
        for index, line in enumerate(piece[:MAX_PIECE_CHARACTERS].split("\n")):
            if index:
                sign = self._palette.glyphs.newline
                cells.append(_spaced(Span(sign, text_width(sign), style), breaks=int(stage == SETTLED)))
            safe = safe_piece(line)
            cells += self._words(settled_text(safe) if stage <= LEANING else uncertain_text(safe), style)
        return tuple(cells)

    def committed(self, text: str) -> tuple[Cell, ...]:
        """The cells of final text: the terminal's own colour and real line breaks without a sign."""
        cells: list[Cell] = []
        for index, line in enumerate(safe_text(text).split("\n")):
            if index:
                cells.append(Cell((Span("", 0, PLAIN),), 0, False, 1))
            cells += self._words(settled_text(safe_piece(line)), PLAIN)
        return tuple(cells)

    def _words(self, text: str, style: Style) -> list[Cell]:
        """One cell per word and per wide character; long words are cut into chunks that may be torn apart."""
        if self._palette.glyphs.ascii_only:
            text = ascii_text(text)
        cells: list[Cell] = []
        for word in _WORDS.findall(text):
            if word.isspace():
                cells += [Cell((blank(len(part)),), len(part), True, 0) for part in _chunks(word)]
                continue
            lead = int(word.startswith(" "))
            soft = bool(lead)
            for part in _chunks(word[lead:]):
                width = text_width(part)
                is_wide = width == 2 and character_width(part[0]) == 2
                bare = Span(part[1:], width - 1, style) if part[0] == BASE_FOR_MARKS and len(part) > 1 else None
                may_break = (soft or is_wide) and (lead == 1 or part[0] not in CLOSING)
                span = Span(part, width, style)
                cells.append(Cell((SPACE, span) if lead else (span,), lead + width, may_break, 0, bare))
                lead, soft = 0, is_wide
        return cells

    def _sign_cell(self, name: str) -> Cell:
        glyphs = self._palette.glyphs
        text = glyphs.opening + (ascii_text(name) if glyphs.ascii_only else name) + glyphs.closing
        return _spaced(Span(text, text_width(text), self._palette.chrome))


def _spaced(span: Span, *, breaks: int = 0) -> Cell:
    """A cell after a blank, before which a row may end."""
    return Cell((SPACE, span), 1 + span.width, True, breaks)


def _first_character(data: bytes) -> tuple[int, str | None]:
    """Bytes and text of the UTF-8 character that `data` begins with; (1, None) where it begins with none."""
    for length in range(1, min(4, len(data)) + 1):
        try:
            return length, data[:length].decode()
        except UnicodeDecodeError:
            continue
    return 1, None


def _chunks(word: str) -> list[str]:
    """`word` cut into wide characters, with their marks, and runs of at most `CHUNK_COLUMNS` narrow ones."""
    if word.isascii():
        return [word[i : i + CHUNK_COLUMNS] for i in range(0, len(word), CHUNK_COLUMNS)]
    chunks: list[str] = []
    room = 0
    for character in word:
        width = character_width(character)
        if chunks and (is_mark(character) or width < 2 and width <= room):
            chunks[-1] += character
            room -= width
        else:
            chunks.append(character)
            room = 0 if width == 2 else CHUNK_COLUMNS - width
    return chunks
