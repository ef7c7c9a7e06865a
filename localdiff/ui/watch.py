"""How one run is watched, as its caller specifies it.

Knows channels and texts; knows nothing about how a canvas is drawn, or on what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from localdiff.events import Channel
from localdiff.ui.terminal_guard import Keys

Render: TypeAlias = Callable[[str, int], str]
"""Renders a passage of the answer for a number of columns of a terminal: made safe, whole lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """What is shown beside a canvas during a run, and what the canvas has to expect.

    Attributes:
        prints: channels whose committed text goes to this terminal too. The answer's does if stdout is the same
            terminal: only one stream may move the cursor.
        elsewhere: channels whose text goes into a pipe, whose reader may print it on this terminal: the canvas steps
            aside for every line of it.
        cancelled: whether the run has been asked to stop; ends a wait early, and is shown in the header.
        legend: explain the colours below the canvas, where there is room.
        render: renders final text; None leaves it as it is.
        begun: the answer so far, for one that is continued: what is unfinished of it is printed again, with the rest.
        keys: see `TerminalGuard`.
    """

    prints: Collection[Channel]
    elsewhere: Collection[Channel] = ()
    cancelled: Callable[[], bool] = lambda: False
    legend: bool = True
    render: Render | None = None
    begun: str = ""
    keys: Keys | None = None
