"""A terminal in memory: takes the bytes of every write and says what stands on the screen and in the scrollback.

Knows pyte; knows nothing about canvases. `ReflowingScreen` breaks and joins rows when its width changes, as most
terminals do; plain pyte cuts them, as xterm does.
"""

from __future__ import annotations

import io
from typing import Any

import pyte


class ReflowingScreen(pyte.HistoryScreen):
    """A screen that breaks rows which have become too long, instead of cutting them."""

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size; rows that no longer fit go on in the next one, and the cursor stays on its character."""
        if columns is None or columns >= self.columns or lines not in (None, self.lines):
            super().resize(lines, columns)
            return
        rows: list[dict[int, Any]] = []
        cursor = (0, 0)
        last = max([self.cursor.y, *(y for y in range(self.lines) if self._used(y))])
        for y in range(last + 1):
            used = max(self._used(y), self.cursor.x + 1 if y == self.cursor.y else 1)
            for start in range(0, used, columns):
                if y == self.cursor.y and start <= self.cursor.x < start + columns:
                    cursor = (len(rows), self.cursor.x - start)
                part = {x - start: self.buffer[y][x] for x in range(start, min(start + columns, used))}
                rows.append(part)
        away = max(0, len(rows) - self.lines)
        super().resize(lines, columns)
        self.buffer.clear()
        for index, row in enumerate(rows):
            line = pyte.screens.StaticDefaultDict(self.default_char)
            line.update(row)
            if index < away:
                self.history.top.append(line)
            else:
                self.buffer[index - away] = line
        self.cursor.y, self.cursor.x = cursor[0] - away, cursor[1]

    def _used(self, y: int) -> int:
        row = self.buffer[y]
        return max((x + 1 for x in list(row) if row[x].data.strip()), default=0)


class FakeTerminal(io.StringIO):
    """A text stream that is a terminal; remembers each write and what the screen showed after it.

    Args:
        columns, rows: its size.
        reflows: whether it breaks rows when it becomes narrower.
    """

    def __init__(self, columns: int = 80, rows: int = 24, *, reflows: bool = False) -> None:
        super().__init__()
        kind = ReflowingScreen if reflows else pyte.HistoryScreen
        self.screen = kind(columns, rows, history=10_000, ratio=0.5)
        self._parser = pyte.Stream(self.screen)
        self.writes: list[str] = []
        self.shown: list[list[str]] = []

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Terminals of today."""
        return "utf-8"

    def isatty(self) -> bool:
        """It is one."""
        return True

    def write(self, text: str) -> int:
        """Show the text."""
        self.writes.append(text)
        self._parser.feed(text)
        self.shown.append(self.lines())
        return len(text)

    def lines(self) -> list[str]:
        """Rows of the screen, without blanks at their ends and without empty rows at the bottom."""
        return "\n".join(row.rstrip() for row in self.screen.display).rstrip("\n").split("\n")

    def scrollback(self) -> list[str]:
        """Rows that have left the screen at its top."""
        rows = self.screen.history.top
        return ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in rows]

    def everything(self) -> list[str]:
        """Scrollback and screen."""
        return self.scrollback() + self.lines()

    def resize(self, columns: int, rows: int) -> None:
        """Pull at the window's corner."""
        self.screen.resize(rows if rows != self.screen.lines else None, columns)
