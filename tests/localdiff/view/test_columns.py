"""Columns stay in line, whatever is in them."""

from __future__ import annotations

from localdiff.view.columns import aligned


def test_cells_are_aligned_to_their_side() -> None:
    assert aligned([("", "step", "seconds"), ("A", "12", "0.5"), ("B", "9", "")], "<>>") == [
        "   step  seconds",
        "A    12      0.5",
        "B     9",
    ]


def test_a_wide_character_takes_two_columns() -> None:
    assert aligned([("name", "size"), ("模型", "3 MB"), ("e\u0301", "4 MB")], "<>") == [
        "name  size",
        "模型  3 MB",
        "e\u0301     4 MB",
    ]


def test_no_rows_are_no_lines() -> None:
    assert aligned([], "") == []


def test_a_cell_longer_than_any_column_pushes_its_own_row_aside() -> None:
    assert aligned([("model", "a/very/long/path", "file"), ("live", "off", "default")], "<<<", widest=5) == [
        "model  a/very/long/path  file",
        "live   off    default",
    ]


def test_where_a_line_does_not_fit_rows_are_blocks() -> None:
    rows = [
        ("model", "demo", "default"),
        ("generate.system", "short answers", ""),
        ("name", "a/very/long/path", "file:3"),
    ]
    width = max(len(line) for line in aligned(rows, "<<<"))
    assert aligned(rows, "<<<", width=width) == aligned(rows, "<<<")
    assert aligned(rows, "<<<", width=20) == [
        "model\n  demo  default",
        "generate.system\n  short answers",
        "name\n  a/very/long/path\n  file:3",
    ]
