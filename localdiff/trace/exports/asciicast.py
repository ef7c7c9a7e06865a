"""A trace as a terminal recording: asciicast v2 (https://docs.asciinema.org/manual/asciicast/v2/).

Frames come from the rows of the canvas, not from a terminal, so the recording has the size that is asked for.
"""

from __future__ import annotations

import json

from localdiff.trace.exports.frames import frames
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Timeline
from localdiff.view.ansi import encode_row
from localdiff.view.layout import Size

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ERASE_ROW = "\x1b[K"


def asciicast(timeline: Timeline, view: ReplayView, size: Size, *, title: str, speed: float = 1.0) -> str:
    """The recording, one JSON value a line; only rows that changed are drawn again."""
    header = {
        "version": 2,
        "width": size.columns,
        "height": size.rows,
        "title": title,
        "env": {"TERM": "xterm-256color"},
    }
    lines = [json.dumps(header)]
    clock, shown = 0.0, [""] * size.rows
    start = "\x1b[2J" + _HIDE
    for rows, seconds in frames(timeline, view, size, speed=speed):
        blank = [""] * (size.rows - len(rows))
        screen = blank + [encode_row(row) for row in rows]
        changed = [
            f"\x1b[{index + 1};1H{row}{_ERASE_ROW}"
            for index, (row, before) in enumerate(zip(screen, shown, strict=True))
            if row != before
        ]
        lines.append(json.dumps([round(clock, 6), "o", start + "".join(changed)]))
        clock, shown, start = clock + seconds, screen, ""
    lines.append(json.dumps([round(clock, 6), "o", f"\x1b[{size.rows};1H\r\n{_SHOW}"]))
    return "\n".join(lines) + "\n"
