"""Columns stay in line, whatever is in them, and lines are broken between words."""

from __future__ import annotations

from localdiff.view.columns import aligned, folded, listed


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


def test_lines_are_broken_between_words() -> None:
    assert folded("one two three", 9, indent=2) == ["one two", "  three"]
    assert folded("two  blanks", 11) == ["two  blanks"]
    assert folded("a very-long-word here", 8, start="> ", indent=2) == ["> a", "  very-long-word", "  here"]
    assert folded("模型 模型 模型", 9) == ["模型 模型", "模型"]
    assert folded("so `a -b` or `c d`", 7) == ["so", "`a -b`", "or", "`c d`"], "what is typed stays on a line"
    assert folded("or a ` b", 4) == ["or a", "` b"]
    assert folded("however long", None, start="> ") == ["> however long"]
    assert folded("", 8) == [""]


def test_a_table_as_lists_names_its_figures() -> None:
    rows = [("block", "steps", "seconds"), ("1", "12", "0.5"), ("2", "9", "")]
    assert listed(rows, 24) == ["block 1: steps 12,", "  seconds 0.5", "block 2: steps 9"]
    assert aligned(rows, ">>>", width=21, headed=True) == aligned(rows, ">>>")
    assert aligned(rows, ">>>", width=20, headed=True) == listed(rows, 20)
