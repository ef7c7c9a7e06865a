"""Layouts by terminal size: from the wide one down to one status line.

Knows sizes and numbers of rows; knows nothing about what the rows say. The height depends only on the size,
the canvas and the text before it, none of which change within a block. Final text that has not left the canvas yet
may take all rows of the screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from localdiff.view.palette import Palette
from localdiff.view.widths import text_width

MAX_BODY_ROWS = 12
"""Maximum rows of a body, not counting final text beyond `PENDING_ROWS` rows; on a tall terminal, half of its rows.

Thus a window that becomes half as wide, which breaks long rows in two, still holds most of the region.
"""
PENDING_ROWS = 3
MIN_BODY_ROWS = 3
LEGEND_ROWS = 16

# Columns that a token takes once it is text; used to estimate the height of a page that is still noise.
_COLUMNS_PER_TOKEN = 4.6


class Size(NamedTuple):
    """Columns and rows of a terminal."""

    columns: int
    rows: int


class Tier(Enum):
    """Layouts, by what they leave out."""

    WIDE = "wide"
    NORMAL = "normal"
    NARROW = "narrow"
    SMALL = "small"
    LINE = "line"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Rows and columns of each part.

    Attributes:
        tier: which layout.
        columns: columns that any row may fill: one less than the terminal has.
        header_rows, body_rows, footer_rows, legend_rows: rows of each part; 0 where the part is left out.
        most_body_rows: what the body may grow to.
        pending_rows: rows of the body that final text gets at first; more if the draft needs fewer than expected.
        prefix: start of every body row.
        map_columns: glyphs of the position map.
        spark_steps: steps that the sparkline shows.
        earlier_blocks: earlier blocks whose steps are listed.
    """

    tier: Tier
    columns: int
    header_rows: int
    body_rows: int
    most_body_rows: int
    footer_rows: int
    legend_rows: int
    pending_rows: int
    prefix: str
    map_columns: int
    spark_steps: int
    earlier_blocks: int

    @property
    def body_columns(self) -> int:
        """Columns left for text."""
        return self.columns - text_width(self.prefix)


def tier_of(size: Size) -> Tier:
    """The richest layout for a terminal of this size."""
    if size.columns < 24 or size.rows < 6:
        return Tier.LINE
    if size.columns < 48:
        return Tier.SMALL
    if size.columns < 76:
        return Tier.NARROW
    return Tier.WIDE if size.columns >= 110 else Tier.NORMAL


def layout_of(
    size: Size, *, palette: Palette, canvas_length: int, pending: int = 0, pending_rows: int = 0, legend: bool = False
) -> Layout:
    """The layout for a canvas, on a terminal that has room for more than a line.

    Args:
        palette: for the sign at the left edge.
        canvas_length: positions in the canvas.
        pending: columns of the final text that is shown before the canvas.
        pending_rows: rows of that text.
        legend: whether the legend is wanted; it is left out where it would take rows from the page.
    """
    tier = tier_of(size)
    columns = size.columns - 1
    border = palette.glyphs.border
    header_rows = 2 if tier is Tier.NARROW else 1
    footer_rows = 0 if tier is Tier.SMALL else 1
    legend_rows = int(legend and size.rows >= LEGEND_ROWS and tier in {Tier.NORMAL, Tier.WIDE})
    prefix = "" if tier is Tier.SMALL else f"{border} " if tier is Tier.NARROW else f" {border} "
    # One row stays free, so that the first row of the region is never the first row of the screen.
    room = size.rows - 1 - header_rows - footer_rows - legend_rows
    text_columns = columns - text_width(prefix)
    # Line breaks cost rows that the estimate does not include; a taller terminal has more to spare.
    spare = size.rows // 10
    little = min(pending, PENDING_ROWS * size.columns)
    estimate = int((little + canvas_length * _COLUMNS_PER_TOKEN) // text_columns) + spare
    most = min(max(MAX_BODY_ROWS, size.rows // 2), room)
    base = min(most, max(MIN_BODY_ROWS, estimate))
    more = max(0, min(pending_rows - PENDING_ROWS, room - base))
    return Layout(
        tier=tier,
        columns=columns,
        header_rows=header_rows,
        body_rows=base + more,
        most_body_rows=min(room, most + more),
        footer_rows=footer_rows,
        legend_rows=legend_rows,
        pending_rows=PENDING_ROWS + more,
        prefix=prefix,
        map_columns=128 if size.columns >= 190 else 64 if tier is Tier.WIDE else 32,
        spark_steps={Tier.WIDE: min(48, size.columns // 5), Tier.NORMAL: 16}.get(tier, 12),
        earlier_blocks={Tier.WIDE: 8, Tier.NORMAL: 4}.get(tier, 0),
    )
