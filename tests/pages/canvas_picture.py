"""Writes `docs/canvas.svg`: `python -m tests.pages.canvas_picture`. It animates the run that ships with the package.

Each frame is what the canvas showed at a step. Frames of steps are all shown equally long: the run itself is over in a
second or two. A test checks the picture against the trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from localdiff.trace.opening import EXAMPLE_FILE
from localdiff.trace.reader import read_trace
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Timeline
from localdiff.trace.trace import Trace
from localdiff.view.canvas_view import Drawn
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.style import Row
from localdiff.view.svg import Shot, animation

SIZE = Size(80, 15)
"""As wide as a page of text on GitHub, and without the empty rows of a terminal."""

NOISE_SECONDS, STEP_SECONDS, END_SECONDS = 0.7, 0.25, 4.0
LONGEST = 20.0


def render(trace: Trace | None = None) -> str:
    """The picture."""
    trace = trace or read_trace(EXAMPLE_FILE)
    shots = list(_shots(trace))
    height = max(len(rows) for rows, _ in shots)
    blank: Row = ()
    return animation(
        [Shot(rows=(*rows, *[blank] * (height - len(rows))), seconds=seconds) for rows, seconds in shots],
        columns=SIZE.columns,
        palette=DARK,
    )


def _shots(trace: Trace) -> Iterator[tuple[list[Row], float]]:
    """Rows from the top of the screen down, and how long they are shown."""
    timeline = Timeline(trace.events)
    view = ReplayView(trace, DARK)
    step_seconds = min(STEP_SECONDS, LONGEST / len(timeline))
    drawn: Drawn | None = None
    for moment in timeline.moments:
        rows, drawn = view.frame(moment, SIZE, drawn)
        yield rows, END_SECONDS if moment.is_final else step_seconds if moment.step else NOISE_SECONDS


if __name__ == "__main__":
    print(render(), end="")
