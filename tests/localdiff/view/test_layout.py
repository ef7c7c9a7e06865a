"""Which parts of the live canvas fit a terminal, and how many rows and columns they get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.view.layout import Layout, Size, Tier, layout_of, tier_of
from localdiff.view.palette import ASCII, DARK


def layout(columns: int, rows: int, canvas: int = 256, pending: int = 0, legend: bool = False) -> Layout:
    return layout_of(Size(columns, rows), palette=DARK, canvas_length=canvas, pending=pending, legend=legend)


@pytest.mark.parametrize(
    ("columns", "rows", "tier"),
    [
        (200, 60, Tier.WIDE),
        (110, 24, Tier.WIDE),
        (109, 24, Tier.NORMAL),
        (76, 14, Tier.NORMAL),
        (75, 24, Tier.NARROW),
        (48, 24, Tier.NARROW),
        (47, 24, Tier.SMALL),
        (24, 6, Tier.SMALL),
        (23, 24, Tier.LINE),
        (200, 5, Tier.LINE),
        (1, 1, Tier.LINE),
    ],
)
def test_tiers(columns: int, rows: int, tier: Tier) -> None:
    assert tier_of(Size(columns, rows)) is tier


def test_the_full_layout() -> None:
    shown = layout(80, 24, legend=True)
    assert (shown.header_rows, shown.body_rows, shown.footer_rows, shown.legend_rows) == (1, 12, 1, 1)
    assert (shown.columns, shown.body_columns, shown.map_columns) == (79, 76, 32)
    assert layout(110, 24).map_columns == 64


def test_wider_terminals_get_more_of_both_gauges() -> None:
    found = [layout(columns, 50) for columns in (40, 60, 80, 110, 120, 189, 190, 200, 300)]
    assert [shown.map_columns for shown in found] == [32, 32, 32, 64, 64, 64, 128, 128, 128]
    assert [shown.spark_steps for shown in found] == [12, 12, 16, 22, 24, 37, 38, 40, 48]


def test_the_legend_takes_no_row_from_the_page() -> None:
    assert layout(80, 15, legend=True).legend_rows == 0
    assert layout(60, 40, legend=True).legend_rows == 0


def test_a_short_canvas_gets_a_low_region() -> None:
    assert layout(80, 24, canvas=16).body_rows == 3
    assert layout(80, 24, canvas=96).body_rows == 7
    assert layout(80, 40, canvas=96).body_rows == 9
    assert layout(80, 24, canvas=96, pending=150).body_rows == 9


def test_a_tall_terminal_shows_the_whole_canvas_in_at_most_half_of_its_rows() -> None:
    assert [layout(80, rows).body_rows for rows in (24, 30, 36, 40, 50, 60)] == [12, 15, 18, 19, 20, 21]
    assert [layout(columns, 50).body_rows for columns in (24, 100, 120, 200)] == [25, 17, 15, 11]


def test_final_text_gets_every_row_that_is_free() -> None:
    def rows(height: int, pending: int) -> tuple[int, int]:
        found = layout_of(Size(80, height), palette=DARK, canvas_length=256, pending=79 * pending, pending_rows=pending)
        return found.body_rows, found.pending_rows

    assert rows(24, 3) == (12, 3)
    assert rows(24, 10) == (19, 10)
    assert rows(24, 100) == (21, 12)
    assert rows(60, 40) == (57, 36)
    assert rows(8, 100) == (5, 3)


def test_the_border_costs_columns_only_where_there_are_some() -> None:
    assert (layout(80, 24).prefix, layout(60, 24).prefix, layout(40, 24).prefix) == (" ┃ ", "┃ ", "")
    assert layout_of(Size(80, 24), palette=ASCII, canvas_length=9).prefix == " | "


@given(st.integers(24, 250), st.integers(6, 80), st.integers(0, 512), st.integers(0, 900), st.booleans())
def test_the_region_always_fits_with_a_row_to_spare(
    columns: int, rows: int, canvas: int, pending: int, legend: bool
) -> None:
    shown = layout(columns, rows, canvas, pending, legend)
    height = shown.header_rows + shown.body_rows + shown.footer_rows + shown.legend_rows
    assert height <= rows - 1
    assert shown.body_rows <= shown.most_body_rows <= rows - 1 - (height - shown.body_rows)
    assert shown.columns == columns - 1
    assert height <= max(16, rows // 2 + 4)
    assert shown.body_rows >= 1
    assert shown.body_columns >= 20
