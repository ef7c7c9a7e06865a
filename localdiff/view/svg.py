"""Rows as a picture: one still, or an animation, in plain SVG without scripts, fonts or links.

Knows colours, cells and time; knows nothing about events. Every cell is one `<text>` with its own x and a length
counted in columns, so that a wide character, or a viewer with another monospaced font, shifts nothing after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from localdiff.view.palette import Palette
from localdiff.view.style import Row, Span, Style

COLUMN, LINE, FONT_SIZE, MARGIN = 8.4, 19.0, 14.0, 14.0

# xterm's own choice for the first sixteen; the cube and the greys are computed.
_BASIC = (
    *("#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5"),
    *("#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shot:
    """One frame of an animation.

    Attributes:
        rows: what it shows.
        seconds: how long, more than 0.
    """

    rows: tuple[Row, ...]
    seconds: float


def hex_color(index: int) -> str:
    """`#rrggbb` of an xterm colour index."""
    if index < 16:
        return _BASIC[index]
    if index >= 232:
        return "#" + f"{8 + 10 * (index - 232):02x}" * 3
    index -= 16
    levels = (index // 36, index // 6 % 6, index % 6)
    return "#" + "".join(f"{55 + 40 * level if level else 0:02x}" for level in levels)


def still(rows: Sequence[Row], *, columns: int, palette: Palette) -> str:
    """An SVG document of one frame.

    Args:
        columns: columns of the terminal that the picture stands for.
    """
    body = [_row(row, y) for y, row in enumerate(rows)]
    return _document(body, columns=columns, rows=len(rows), palette=palette, style="")


def animation(shots: Sequence[Shot], *, columns: int, palette: Palette) -> str:
    """An SVG document that shows frames, at least one, one after the other in a loop.

    A row that stays the same over several frames is drawn once, which keeps the animation of a settling page small.
    Where motion is off or reduced, the last frame stands still.
    """
    total = sum(shot.seconds for shot in shots)
    height = max(len(shot.rows) for shot in shots)
    body: list[str] = []
    rules: list[str] = []
    for y in range(height):
        for row, start, stop in _stretches(shots, y):
            markup = _row(row, y)
            if not markup:
                continue
            is_last = stop >= total - 1e-9
            if start == 0 and is_last:
                body.append(markup)
                continue
            name = f"r{len(rules)}"
            rules.append(_rule(name, start / total, stop / total, total, is_last=is_last))
            body.append(f'<g class="{name}">{markup}</g>')
    reduced = "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
    style = f"<style>{''.join(rules)}{reduced}</style>"
    return _document(body, columns=columns, rows=height, palette=palette, style=style)


def _stretches(shots: Sequence[Shot], y: int) -> Iterator[tuple[Row, float, float]]:
    """What row `y` shows, with start and end times."""
    clock = 0.0
    for row, same in groupby(shots, lambda shot: shot.rows[y] if y < len(shot.rows) else ()):
        start = clock
        for shot in same:
            clock += shot.seconds
        yield row, start, clock


def _rule(name: str, start: float, stop: float, seconds: float, *, is_last: bool) -> str:
    """CSS that shows a group between two moments, given as shares of the animation."""
    # `step-end` holds each value until the next moment.
    moments = {0.0: 0, start: 1, stop: 0, 1.0: 0}
    if is_last:
        moments[1.0] = 1
    frames = "".join(f"{100 * at:.6g}%{{opacity:{value}}}" for at, value in sorted(moments.items()))
    rest = "" if is_last else "opacity:0;"
    return f".{name}{{{rest}animation:{name} {seconds:.6g}s step-end infinite}}@keyframes {name}{{{frames}}}"


def _row(row: Row, y: int) -> str:
    parts: list[str] = []
    column = 0
    for span in row:
        if span.text.strip():
            parts.append(_cell(span, column, y))
        column += span.width
    return "".join(parts)


def _cell(span: Span, column: int, y: int) -> str:
    # Browsers drop spaces at the ends of a text, whatever `xml:space` says, and stretch the rest over their place.
    text = span.text.strip(" ")
    column += len(span.text) - len(span.text.lstrip(" "))
    width = span.width - (len(span.text) - len(text))
    x, baseline = MARGIN + column * COLUMN, MARGIN + (y + 0.76) * LINE
    stretch = f' textLength="{width * COLUMN:.1f}"' if width else ""
    return f'<text x="{x:.1f}" y="{baseline:.1f}"{stretch}{_paint(span.style)}>{escape(text)}</text>'


def _paint(style: Style) -> str:
    paint = "" if style.foreground is None else f' fill="{hex_color(style.foreground)}"'
    if style.bold:
        paint += ' font-weight="bold"'
    if style.dim:
        paint += ' opacity="0.6"'
    if style.underline:
        paint += ' text-decoration="underline"'
    return paint


def _document(body: Sequence[str], *, columns: int, rows: int, palette: Palette, style: str) -> str:
    width, height = 2 * MARGIN + columns * COLUMN, 2 * MARGIN + rows * LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="monospace" font-size="{FONT_SIZE:.0f}" '
        f'fill="{palette.foreground}" xml:space="preserve">{style}'
        f'<rect width="100%" height="100%" rx="8" fill="{palette.background}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )
