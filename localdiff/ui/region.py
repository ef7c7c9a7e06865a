"""A few rows at the bottom of the normal screen that are redrawn in place, with final text printed above them.

Knows cursor movement, synchronized-update marks and what a terminal does with rows; knows nothing about
canvases, files or threads: it turns rows into the text of one write. No row is erased before it is overwritten,
except where final text or rows are added; only rows that changed are sent; no row reaches the last column. Between
frames the cursor rests at the start of the region's first row: whatever a terminal does to the rows below when its
size changes, it keeps that place.

A terminal may have lost rows before it reads a frame, over a network many milliseconds later. Room for new rows is
therefore made before any of them is drawn, so that no draft scrolls away, and the terminal itself saves the position
to which the cursor returns: counting rows would lead too far up, into final text, which the next frame would erase.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localdiff.view.ansi import RESET
from localdiff.view.layout import Size

SYNC_ON, SYNC_OFF = "\x1b[?2026h", "\x1b[?2026l"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
CURSOR_OFF, CURSOR_ON = "\x1b[?25l", "\x1b[?25h"
PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"
ERASE_REST_OF_ROW, ERASE_BELOW = "\x1b[K", "\x1b[J"
_KEEP_PLACE, _TO_KEPT_PLACE = "\x1b7", "\x1b8"
_SGR = re.compile(r"\x1b\[[0-9;]*m")

RESTORE = SYNC_OFF + WRAP_ON + RESET + CURSOR_ON
"""Restores everything that a frame, whole or cut short, may have changed."""

# Not from the first column: at the top left, tmux would take that for clearing the screen, and save the cleared text.
_ERASE_FROM_FIRST_COLUMN = "\x1b[K\x1b[C\x1b[J"
ERASE_REGION = f"\r{_ERASE_FROM_FIRST_COLUMN}\r"
"""Removes a region, from where the cursor rests between frames."""

LEAVE = RESTORE + PASTES_OFF + ERASE_REGION
"""Restores everything, including the marks of pastes that a chat asks for, and removes a region."""


class Region:
    """The rows that are on the screen now, and how to turn them into new rows."""

    def __init__(self) -> None:
        self._rows: tuple[str, ...] = ()
        self._is_known = True
        self._size: Size | None = None

    @property
    def height(self) -> int:
        """Rows that the region has on the screen; 0 before the first frame."""
        return len(self._rows)

    def forget(self) -> None:
        """Send every row again in the next frame, changed or not."""
        self._is_known = False

    def abandon(self) -> None:
        """Leave the rows where they are and begin anew at the cursor, after something else was on the screen."""
        self._rows, self._size = (), None

    def frame(self, rows: Sequence[str], size: Size, *, above: str = "") -> str:
        """The text of one write that makes the screen show `rows`.

        Args:
            rows: encoded rows without line ends, each under the width of the terminal and fewer than its
                rows.
            size: of the terminal now; after a change every row is sent again.
            above: final text to leave above the region; whole lines, each ending with a newline.

        Returns:
            The text, or nothing where the screen already shows this.
        """
        resized = self._size is not None and size != self._size
        grows = 0 < self.height < len(rows)
        is_new = not self._rows or resized or grows or bool(above)
        previous = () if is_new or not self._is_known else self._rows
        if previous == tuple(rows):
            return ""
        # Rows that a narrower terminal has wrapped are removed with the rest.
        head = [SYNC_ON, "" if previous else CURSOR_OFF, ERASE_REGION if resized or grows else "\r", _lines(above)]
        room = _room(len(rows)) if is_new else ""
        body = _rows(rows, previous, clears_below=is_new or len(rows) < self.height)
        self._rows, self._is_known, self._size = tuple(rows), True, size
        return "".join([*head, room, WRAP_OFF, _KEEP_PLACE, body, _TO_KEPT_PLACE, WRAP_ON, SYNC_OFF])

    def close(self, text: str = "") -> str:
        """The text of one write that puts `text` in place of the region and restores the terminal.

        Args:
            text: the rest of the final text; empty, or whole lines.
        """
        parts = [SYNC_ON, "\r", _lines(text), ERASE_REGION, RESTORE]
        self.abandon()
        return "".join(parts)


def _room(rows: int) -> str:
    """Makes room for so many rows from the cursor on, scrolling if need be; ends where the first of them begins."""
    return "\r\n" * (rows - 1) + f"\x1b[{rows - 1}A" if rows > 1 else ""


def _rows(rows: Sequence[str], previous: Sequence[str], *, clears_below: bool) -> str:
    """Rows that differ from the previous ones, from the region's first row on."""
    parts: list[str] = []
    at, last = 0, len(rows) - 1
    for index, row in enumerate(rows):
        is_end = clears_below and index == last
        if index < len(previous) and previous[index] == row and not is_end:
            continue
        down = f"\x1b[{index - at}B" if index > at else ""
        parts += [down, row, _erase_below(row) if is_end else ERASE_REST_OF_ROW, "\r"]
        at = index
    return "".join(parts)


def _erase_below(row: str) -> str:
    """Erases the rest of the last row, and all rows below it."""
    return ERASE_BELOW if _SGR.sub("", row) else _ERASE_FROM_FIRST_COLUMN


def _lines(text: str) -> str:
    """Final text in place of old rows; the terminal breaks long lines itself, so that they can be copied whole.

    Unlike frames, it is not written over old text: in tmux, cells erased after a line would stay part of it, as
    blanks that a wider window breaks into empty rows.
    """
    return _ERASE_FROM_FIRST_COLUMN + "\r" + text.replace("\n", "\r\n") if text else ""
