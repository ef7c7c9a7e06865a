"""A moment of a trace as text: its rows without their colours."""

from __future__ import annotations

from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Moment
from localdiff.view.layout import Size
from localdiff.view.style import row_text


def picture(view: ReplayView, moment: Moment, size: Size) -> str:
    """What a terminal of this size shows at a moment, without trailing blanks."""
    rows, _ = view.frame(moment, size)
    return "".join(row_text(row).rstrip() + "\n" for row in rows)
