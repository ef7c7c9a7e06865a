"""A trace as SVG: an animation, or one moment as a still."""

from __future__ import annotations

from localdiff.trace.exports.frames import frames
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Moment, Timeline
from localdiff.view.layout import Size
from localdiff.view.palette import Palette
from localdiff.view.style import Row
from localdiff.view.svg import Shot, animation, still


def animated(timeline: Timeline, view: ReplayView, size: Size, palette: Palette, *, speed: float = 1.0) -> str:
    """The whole run, in its own time divided by `speed`; rows are at the bottom, as in a terminal."""
    shown = list(frames(timeline, view, size, speed=speed))
    height = max(len(rows) for rows, _ in shown)
    blank: Row = ()
    shots = [Shot(rows=(*[blank] * (height - len(rows)), *rows), seconds=seconds) for rows, seconds in shown]
    return animation(shots, columns=size.columns, palette=palette)


def picture(view: ReplayView, moment: Moment, size: Size, palette: Palette) -> str:
    """One moment as a still."""
    rows, _ = view.frame(moment, size)
    return still(rows, columns=size.columns, palette=palette)
