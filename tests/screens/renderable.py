"""The same rows as a rich renderable, for `rich.live.Live`, `Console.print` and panels.

Knows what styles are called in rich; adds nothing to the picture.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style as RichStyle

from localdiff.view.canvas_view import CanvasView, Drawn
from localdiff.view.layout import Size
from localdiff.view.scene import Scene
from localdiff.view.style import Style


@lru_cache(maxsize=256)
def rich_style(style: Style) -> RichStyle:
    """A style as rich's."""
    color = None if style.foreground is None else Color.from_ansi(style.foreground)
    return RichStyle(color=color, bold=style.bold or None, dim=style.dim or None, underline=style.underline or None)


class CanvasRenderable:
    """Draws the scene that `show` was given last.

    Args:
        view: makes the rows; its palette decides the styles, not the console's theme.
        scene: what to draw first.
    """

    def __init__(self, view: CanvasView, scene: Scene) -> None:
        self._view = view
        self._scene = scene
        self._drawn: Drawn | None = None
        self._next = Drawn()

    def show(self, scene: Scene) -> None:
        """Draw this from now on; what differs from what was drawn last is marked."""
        self._scene, self._drawn = scene, self._next

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        picture = self._view.picture(self._scene, Size(options.max_width, options.size.height), self._drawn)
        self._next = picture.drawn
        for row in picture.rows:
            for span in row:
                yield Segment(span.text, rich_style(span.style))
            yield Segment.line()
