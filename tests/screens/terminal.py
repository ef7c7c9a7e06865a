"""A terminal in memory: takes the bytes of every write, and tells what is on the screen and in the scrollback.

Knows pyte; knows nothing about canvases. `CuttingScreen` cuts rows when it becomes narrower and drops what is below the
cursor when it becomes lower, as xterm does; `ReflowingScreen` breaks rows and keeps the last ones, as VTE does. Both
move what is cleared from the corner of the screen on into the scrollback, as tmux does. In both, unlike in pyte, a wide
character that does not fit the last column begins the next row, and after a full row the cursor is on its last column,
which is erased with the rest of the row.
"""

from __future__ import annotations

import io
import textwrap
import threading
from typing import Any

import pyte
from wcwidth import wcwidth


class CuttingScreen(pyte.HistoryScreen):
    """A screen that cuts rows when it becomes narrower, and drops those below its cursor when it becomes lower."""

    def draw(self, data: str) -> None:
        """Write characters; a wide one that does not fit in the row goes to the next."""
        for character in data:
            if self.cursor.x == self.columns - 1 and wcwidth(character) == 2 and pyte.modes.DECAWM in self.mode:
                self.carriage_return()
                self.linefeed()
            super().draw(character)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Erase; after a full row that includes its last character."""
        if how == 0 and self.cursor.x == self.columns:
            self.buffer[self.cursor.y][self.columns - 1] = self.cursor.attrs
        super().erase_in_line(how, private)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size; rows at the top go into the scrollback."""
        if columns is not None and columns != self.columns:
            self.change_width(columns)
        if lines is None or lines == self.lines:
            return
        if lines < self.lines:
            self._scroll_away(max(0, self.row_to_keep() + 1 - lines), lines)
        self.lines = lines
        self.set_margins()

    def erase_in_display(self, how: int = 0, *arguments: Any, **private: Any) -> None:
        """Erase; if that starts at the corner of the screen, what was there goes into the scrollback."""
        if how == 0 and (self.cursor.x, self.cursor.y) == (0, 0):
            self.history.top.extend(self.buffer[y].copy() for y in range(self._last_row() + 1))
        super().erase_in_display(how, *arguments, **private)

    def row_to_keep(self) -> int:
        """The last row that stays in sight when the screen becomes lower."""
        return self.cursor.y

    def change_width(self, columns: int) -> None:
        """Cut what does not fit."""
        super().resize(None, columns)

    def _last_row(self) -> int:
        return max([self.cursor.y, *(y for y in range(self.lines) if self._used(y))])

    def _scroll_away(self, count: int, lines: int) -> None:
        rows = {y: self.buffer[y] for y in range(self.lines)}
        self.buffer.clear()
        for y, row in rows.items():
            if y < count:
                self.history.top.append(row)
            elif y - count < lines:
                self.buffer[y - count] = row
        self.cursor.y = max(0, self.cursor.y - count)

    def _used(self, y: int) -> int:
        row = self.buffer[y]
        return max((x + 1 for x in list(row) if row[x].data.strip()), default=0)


class ReflowingScreen(CuttingScreen):
    """A screen that breaks rows that have become too long; the cursor stays on its character as long as it can."""

    def row_to_keep(self) -> int:
        """The last row with text, or the cursor's."""
        return self._last_row()

    def change_width(self, columns: int) -> None:
        """Break what does not fit; rows broken before are not joined again."""
        if columns > self.columns:
            super().change_width(columns)
            return
        rows: list[dict[int, Any]] = []
        cursor = (0, 0)
        for y in range(self._last_row() + 1):
            used = max(self._used(y), self.cursor.x + 1 if y == self.cursor.y else 1)
            for start in range(0, used, columns):
                if y == self.cursor.y and start <= self.cursor.x < start + columns:
                    cursor = (len(rows), self.cursor.x - start)
                rows.append({x - start: self.buffer[y][x] for x in range(start, min(start + columns, used))})
        away = max(0, len(rows) - self.lines)
        super().change_width(columns)
        self.buffer.clear()
        for index, row in enumerate(rows):
            line = pyte.screens.StaticDefaultDict(self.default_char)
            line.update(row)
            if index < away:
                self.history.top.append(line)
            else:
                self.buffer[index - away] = line
        self.cursor.y, self.cursor.x = max(0, cursor[0] - away), cursor[1]


class FakeTerminal(io.StringIO):
    """A text stream that is a terminal; remembers each write and what the screen showed after it.

    Args:
        columns, rows: its size.
        reflows: whether it breaks rows when it becomes narrower.
    """

    def __init__(self, columns: int = 80, rows: int = 24, *, reflows: bool = False) -> None:
        super().__init__()
        kind = ReflowingScreen if reflows else CuttingScreen
        self.screen = kind(columns, rows, history=10_000, ratio=0.5)
        self._parser = pyte.Stream(self.screen)
        self._lock = threading.RLock()  # a thread that draws is never seen in the middle of a frame
        self.writes: list[str] = []
        self.shown: list[list[str]] = []

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """UTF-8, as terminals use today."""
        return "utf-8"

    def isatty(self) -> bool:
        """Always true."""
        return True

    def write(self, text: str) -> int:
        """Show the text, with line ends as the line discipline makes them."""
        with self._lock:
            self.writes.append(text)
            self._parser.feed(text.replace("\n", "\r\n"))
            self.shown.append(self.lines())
        return len(text)

    def lines(self) -> list[str]:
        """Rows of the screen, without blanks at their ends and without empty rows at the bottom."""
        with self._lock:
            return "\n".join(row.rstrip() for row in self.screen.display).rstrip("\n").split("\n")

    def scrollback(self) -> list[str]:
        """Rows that have left the screen at its top."""
        rows = self.screen.history.top
        return ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in rows]

    def everything(self) -> list[str]:
        """Scrollback and screen."""
        return self.scrollback() + self.lines()

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window."""
        self.screen.resize(rows, columns)


def lines_of(text: str, columns: int = 80) -> list[str]:
    """The lines of final text of narrow characters on a terminal: broken between words, except in code."""
    lines, is_code = [], False
    for line in text.rstrip("\n").split("\n"):
        is_fence = line.startswith("```")
        is_code ^= is_fence
        whole = is_code or is_fence or not line
        lines += [line] if whole else textwrap.wrap(line, columns - 1, break_on_hyphens=False, break_long_words=False)
    return lines


def rows_of(text: str, columns: int = 80) -> list[str]:
    """Final text of narrow characters as a terminal shows it, without the empty rows at its end."""
    return [row for line in lines_of(text, columns) for row in torn(line, columns)]


def torn(text: str, columns: int = 80) -> list[str]:
    """Text of narrow characters as a terminal itself breaks it."""
    return [
        line[start : start + columns].rstrip()
        for line in text.split("\n")
        for start in range(0, max(1, len(line)), columns)
    ]
