"""Where rows end, and which rows are in sight."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.view.cells import Cell, CellMaker
from localdiff.view.flow import Page, lay_out, window
from localdiff.view.palette import DARK, SETTLED
from localdiff.view.style import row_text, row_width
from localdiff.view.word_wrap import wrapped
from tests.fakes.canvas import pieces_of

MAKER = CellMaker(pieces=pieces_of(lambda token: ""), palette=DARK)


def cells_of(pieces: list[str]) -> list[Cell]:
    return [cell for piece in pieces for cell in MAKER.text(piece, SETTLED, False)]


def page(pieces: list[str], columns: int) -> Page:
    return lay_out(cells_of(pieces), columns)


def rows(pieces: list[str], columns: int) -> list[str]:
    return [row_text(row) for row in page(pieces, columns).rows]


def test_words_move_whole_and_lose_the_space_before_them() -> None:
    assert rows(["one", " two", " three"], 9) == ["one two", "three"]


def test_blanks_of_their_own_are_left_out_where_a_row_ends() -> None:
    assert rows(["one", " ", "3"], 4) == ["one", "3"]
    assert rows(["one", " ", "3", "4"], 5) == ["one", "34"]
    assert rows(["one", "  ", " ", " two"], 4) == ["one", "two"]
    assert rows(["one", "\n", "  ", "x"], 4) == ["one", "  x"], "those that begin a line stay"
    assert page(["one", " ", "3"], 4).starts == (0, 2)


def test_pieces_of_one_word_move_together() -> None:
    assert rows(["a", " con", "den", "sing"], 10) == ["a", "condensing"]


def test_a_word_longer_than_a_row_is_torn() -> None:
    assert rows(["x" * 20], 8) == ["xxxxxxxx", "xxxxxxxx", "xxxx"]
    assert rows(["ab", "cdefgh", "ijklmnop", "q"], 8) == ["abcdefgh", "ijklmnop", "q"]


def test_a_wide_character_that_would_stand_across_the_edge_moves_on() -> None:
    assert rows(["日本語"], 5) == ["日本", "語"]


def test_newlines_end_rows() -> None:
    assert rows(["one", "\n", "two", "\n\n", "three"], 20) == ["one ↵", "two ↵", "↵", "three"]


def test_the_sign_of_a_newline_needs_no_row_of_its_own() -> None:
    assert rows(["12345678", "\n", "x"], 8) == ["12345678", "x"]


def test_many_newlines_leave_one_blank_row_at_most() -> None:
    assert rows(["a", "\n" * 6, "b"], 20) == ["a ↵", "↵", "↵ ↵ ↵ ↵b"]


def test_indentation_stays() -> None:
    assert rows(["if", "\n", "    ", "x"], 20) == ["if ↵", "    x"]


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["-", " one", " two", " three", " four", " five"], ["- one two three four", "  five"]),
        (["12", ".", " one", " two", " three", " four"], ["12. one two three", "    four"]),
        (["  ", "*", " one", " two", " three", " four"], ["  * one two three", "    four"]),
        ([">", " -", " one", " two", " three", " four"], ["> - one two three", "    four"]),
        (["    ", "one", " two", " three", " four"], ["    one two three", "    four"]),
        (["-", " one", "\n", "two", " three", " four", " five"], ["- one ↵", "two three four five"]),
        (["-", " one", "\n", "two", " three", " four", " five", " six"], ["- one ↵", "two three four five", "six"]),
        (["-", "one", " two", " three", " four", " five"], ["-one two three four", "five"]),
        (["-", " x" * 9, "abcdefgh", "ijklmnop", "q"], ["- x x x x x x x x", "  xabcdefghijklmnopq"]),
        (["-", " 日本語日本語日本語日本語"], ["- 日本語日本語日本語", "  日本語"]),
        (["    " * 2, "-", " one", " two", " three"], ["        - one two", "three"]),
    ],
)
def test_rows_of_an_item_are_indented_as_its_text_where_that_leaves_room(pieces: list[str], shown: list[str]) -> None:
    assert rows(pieces, 20) == shown


marks = st.sampled_from(["", "- ", "* - ", "12. ", "    1) ", ">> ", "> 1. ", "1.5 "])
words = st.lists(st.sampled_from(["a", "some", "words", "-", "1)", ">"]), min_size=1, max_size=20).map(" ".join)
texts = st.lists(st.tuples(marks, words).map("".join), max_size=5).map("\n".join)


@given(texts, st.integers(36, 60))
def test_rows_are_those_of_final_text(text: str, columns: int) -> None:
    cells = MAKER.committed(text)
    shown = [row_text(row) for row in lay_out(cells, columns).rows]
    assert shown == wrapped(text, columns + 1).split("\n")


@given(texts, st.integers(17, 60))
def test_rows_are_the_same_where_those_before_are_left_out(text: str, columns: int) -> None:
    cells = MAKER.committed(text)
    whole = lay_out(cells, columns)
    for index, (start, indent) in enumerate(zip(whole.starts, whole.indents, strict=True)):
        rest = cells[start:]
        assert lay_out(rest, columns, indent=indent).rows == whole.rows[index:]


def test_a_mark_joins_the_letter_before_it_and_nothing_else() -> None:
    assert rows(["\u0916", "\u093f"], 20) == ["\u0916\u093f"]
    assert rows([".", "\u093f"], 20) == [".◌\u093f"]
    assert rows(["\u093f"], 20) == ["◌\u093f"]
    assert rows(["\u0916\u093f", "\u0902"], 20) == ["\u0916\u093f\u0902"]


def test_no_row_begins_with_a_mark_that_closes() -> None:
    assert rows(["日本", "語", "、", "本", ")"], 6) == ["日本", "語、", "本)"]


def test_no_row_is_too_wide_for_a_terminal_that_gives_vowel_signs_a_column_of_their_own() -> None:
    shown = rows([" हिन्दी", " में", " कहानी", " लिखो", "हिन्दीमेंएककहानीलिखो"] * 9, 40)
    columns = [sum(unicodedata.category(character) != "Mn" for character in row) for row in shown]
    assert max(columns) <= 40 and len(shown) > 5


def test_no_cells_make_one_empty_row() -> None:
    assert lay_out([], 10) == Page(rows=((),), starts=(0,), indents=(None,))


def test_rows_know_their_cells() -> None:
    shown = page(["one", " two", " three", " four"], 9)
    assert [shown.row_of(cell) for cell in range(4)] == [0, 0, 1, 2]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(4, 20))
def test_a_row_knows_the_cell_that_it_begins_with(words: list[bool], columns: int) -> None:
    pieces = [f" {position:02}" if is_word else "\n" for position, is_word in enumerate(words)]
    shown = page(pieces, columns)
    begun = [row_text(row).split(" ")[0][:2] for row in shown.rows]
    assert begun == [pieces[position].strip(" ").replace("\n", "↵") for position in shown.starts]


PIECE = st.sampled_from(
    [" a", "b", " word", "ing", "\n", "\n\n", "日", " 🙂", "    ", "x" * 30, "\u0301", "", " e\u0301"]
)


@given(st.lists(PIECE, max_size=60), st.integers(17, 60))
def test_rows_never_overflow_and_lose_nothing_but_space(pieces: list[str], columns: int) -> None:
    shown = page(pieces, columns)
    assert all(row_width(row) <= columns for row in shown.rows)
    signs = str.maketrans("", "", " ↵◌")
    laid = "".join(row_text(row) for row in shown.rows).translate(signs)
    given_ = "".join(cell.span.text for piece in pieces for cell in MAKER.text(piece, SETTLED, False)).translate(signs)
    assert laid == given_
    assert list(shown.starts) == sorted(shown.starts)


@pytest.mark.parametrize(
    ("total", "focus", "before", "top"),
    [(8, 3, 0, 0), (20, 15, 0, 5), (20, 5, 8, 4), (20, 9, 5, 5), (20, 0, 9, 0), (20, 19, 0, 8), (12, 11, 5, 0)],
)
def test_the_window_moves_as_little_as_it_can(total: int, focus: int, before: int, top: int) -> None:
    assert window(total, focus, 12, before) == top


@given(st.integers(1, 50), st.integers(0, 49), st.integers(1, 15), st.integers(0, 60))
def test_the_window_always_shows_its_focus(total: int, focus: int, rows: int, before: int) -> None:
    focus = min(focus, total - 1)
    top = window(total, focus, rows, before)
    assert 0 <= top <= max(0, total - rows)
    assert top <= focus < top + rows
    if rows >= 4 and total > rows:
        assert top == 0 or focus > top, "the first row is a note then"
        assert top + rows == total or focus < top + rows - 1, "the last row is a note then"
