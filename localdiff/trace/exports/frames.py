"""A timeline as frames of a screen of fixed size, each with its duration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Timeline
from localdiff.view.canvas_view import Drawn
from localdiff.view.layout import Size
from localdiff.view.style import Row

SHORTEST = 1 / 30
"""Shortest duration of a frame in seconds, that of a screen."""

LAST = 3.0
"""Seconds for which the last frame is shown before the loop restarts."""


def frames(
    timeline: Timeline, view: ReplayView, size: Size, *, speed: float = 1.0
) -> Iterator[tuple[list[Row], float]]:
    """Rows and duration of each moment, with changes from the frame before marked."""
    drawn: Drawn | None = None
    times = [moment.seconds / speed for moment in timeline.moments]
    lengths = [max(SHORTEST, after - before) for before, after in pairwise(times)] + [LAST]
    for moment, seconds in zip(timeline.moments, lengths, strict=True):
        rows, drawn = view.frame(moment, size, drawn)
        yield rows, seconds
