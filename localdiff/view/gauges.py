"""Two gauges of certainty: a sparkline with a glyph per step, and a map with a glyph per few positions.

Knows entropies and levels; knows nothing about where the glyphs are put. Both scales are logarithmic, from
0.005 nats, where a block may stop, to 8 nats: on a linear scale everything after the first steps would be
flat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from localdiff.view.palette import Palette, stage_of
from localdiff.view.style import PLAIN, Row, Span

LOWEST, HIGHEST = 0.005, 8.0
LEVELS = 8

# A level begins half a level below the entropy that it stands for.
_BEGINS = [LOWEST * (HIGHEST / LOWEST) ** ((level - 0.5) / (LEVELS - 1)) for level in range(1, LEVELS)]

level_of: Final[Callable[[float], int]] = partial(bisect_right, _BEGINS)
"""Level 0..7 of an entropy in nats: 0 at 0.005, 7 at 8, logarithmic in between; NaN counts as 8."""


def sparkline(means: Sequence[float], steps: int, palette: Palette) -> Row:
    """One glyph per step: the latest `steps` mean entropies, oldest first, in the colours of their stages."""
    shown = means[-steps:] if steps else ()
    return tuple(Span(palette.glyphs.levels[level_of(mean)], 1, palette.stages[stage_of(mean)]) for mean in shown)


def position_map(
    entropies: Sequence[float], *, end: int, renoised: Sequence[bool], columns: int, palette: Palette
) -> Row:
    """One glyph for each group of positions, in the order of the canvas, whatever the text does.

    Args:
        entropies: nats, one per position.
        end: position of the end of turn, or the canvas length: what follows is left blank.
        renoised: positions that went back to noise; the glyph of their group is underlined.
        columns: maximum number of glyphs; fewer if the canvas has fewer positions.

    Returns:
        `min(columns, len(entropies))` spans of one column. Each shows the largest entropy of its group.
    """
    length = len(entropies)
    count = min(columns, length)
    is_marked = any(renoised)
    spans: list[Span] = []
    for index in range(count):
        start, stop = index * length // count, (index + 1) * length // count
        if start > end:
            spans.append(Span(" ", 1, PLAIN))
            continue
        stop = min(stop, end + 1)
        worst = max(entropies[start:stop])
        style = palette.stages[stage_of(worst)]
        if is_marked and any(renoised[start:stop]):
            style = style.underlined()
        spans.append(Span(palette.glyphs.levels[level_of(worst)], 1, style))
    return tuple(spans)
