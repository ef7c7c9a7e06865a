"""Traces in other forms, each a pure function to a string: text, JSON, SVG and a terminal recording.

Pictures and recordings come from the rows of the canvas, not from a terminal, and so have the requested size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

from localdiff.events import object_of
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Moment, Timeline
from localdiff.trace.trace import Trace
from localdiff.view import svg
from localdiff.view.ansi import encode_row
from localdiff.view.canvas_view import Drawn
from localdiff.view.layout import Size
from localdiff.view.palette import Palette
from localdiff.view.style import Row, row_text

SHORTEST = 1 / 30
"""Shortest duration of a frame in seconds, as in a replay on a screen."""
LAST = 3.0
"""Seconds for which the last frame is shown before the loop restarts."""
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ERASE_ROW = "\x1b[K"


def unpacked(trace: Trace, *, escaped: bool = False) -> str:
    """One JSON object with every array written out, for programs that do not unpack arrays themselves.

    It has `header`, `complete`, `sha256`, `pieces`, `special`, and `events` as in `docs/events.md`.

    Args:
        escaped: ASCII only, for example for a terminal, which the model's text must not control.
    """
    whole = {
        "header": trace.header.to_object(),
        "complete": trace.complete,
        "sha256": trace.sha256,
        "pieces": {str(token): trace.pieces[token] for token in sorted(trace.pieces)},
        "special": sorted(trace.special),
        "events": [object_of(event) for event in trace.events],
    }
    return json.dumps(whole, default=asdict, ensure_ascii=escaped, allow_nan=False, separators=(",", ":")) + "\n"


def text_still(view: ReplayView, moment: Moment, size: Size) -> str:
    """What a terminal of this size shows at a moment, without colours and trailing blanks."""
    rows, _ = view.frame(moment, size)
    return "".join(row_text(row).rstrip() + "\n" for row in rows)


def svg_still(view: ReplayView, moment: Moment, size: Size, palette: Palette) -> str:
    """One moment as SVG."""
    rows, _ = view.frame(moment, size)
    return svg.still(rows, columns=size.columns, palette=palette)


def svg_animation(timeline: Timeline, view: ReplayView, size: Size, palette: Palette, *, speed: float = 1.0) -> str:
    """The whole run as SVG, with its own times divided by `speed`; rows are at the bottom, as in a terminal."""
    shown = list(frames(timeline, view, size, speed=speed))
    height = max(len(rows) for rows, _ in shown)
    blank: Row = ()
    shots = [svg.Shot(rows=(*[blank] * (height - len(rows)), *rows), seconds=seconds) for rows, seconds in shown]
    return svg.animation(shots, columns=size.columns, palette=palette)


def asciicast(timeline: Timeline, view: ReplayView, size: Size, *, title: str, speed: float = 1.0) -> str:
    """The whole run as asciicast v2 (https://docs.asciinema.org/manual/asciicast/v2/), one JSON value a line.

    Only rows that changed are drawn again.
    """
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


def frames(
    timeline: Timeline, view: ReplayView, size: Size, *, speed: float = 1.0
) -> Iterator[tuple[list[Row], float]]:
    """Rows and duration of each moment, with changes from the previous frame marked."""
    drawn: Drawn | None = None
    times = [moment.seconds / speed for moment in timeline.moments]
    lengths = [max(SHORTEST, after - before) for before, after in pairwise(times)] + [LAST]
    for moment, seconds in zip(timeline.moments, lengths, strict=True):
        rows, drawn = view.frame(moment, size, drawn)
        yield rows, seconds
