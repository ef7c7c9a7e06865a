"""Final text on a terminal is broken between words, and code is left as it is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.view.widths import text_width
from localdiff.view.word_wrap import WordWrap, wrapped

_PIECES = [" ", "  ", "\t", "\n", "a", "some", "words", "模", "é", "-", ">", "```", "~~~"]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("one two three\n", "one two\nthree\n"),
        ("one two\nthree\n", "one two\nthree\n"),
        ("one  two  three\n", "one  two\nthree\n"),
        ("one two \n", "one two \n"),
        ("one two    \nthree", "one two\nthree"),
        ("  indented line\n", "  indented\n  line\n"),
        ("    * item\n", "    * item\n"),
        ("a\tb c d\n", "a\tb\nc d\n"),
        ("\n\n", "\n\n"),
        ("", ""),
    ],
)
def test_lines_are_broken_between_words_where_the_next_one_would_reach_the_last_column(text: str, broken: str) -> None:
    assert wrapped(text, 11) == broken


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("* one two three", "* one two\n  three"),
        ("-   one two three", "-   one\n    two\n    three"),
        ("12. one two three", "12. one\n    two\n    three"),
        ("  + one two", "  + one\n    two"),
        ("- one two\nthree for one", "- one two\nthree for\none"),
        ("-one two three", "-one two\nthree"),
        ("1.5 two three", "1.5 two\nthree"),
        ("one - two three", "one - two\nthree"),
        ("        - one two", "        -\none two"),
    ],
)
def test_rows_of_an_item_are_indented_as_its_text_unless_that_takes_half_of_them(text: str, broken: str) -> None:
    assert wrapped(text, 11) == broken


def test_a_word_longer_than_a_row_begins_one_and_is_left_to_the_terminal() -> None:
    # The terminal fills a row of 11 columns and three of the next one; after ` here,` two are left, too few for ` or`.
    assert wrapped("see localdiff/view here, or not", 11) == "see\nlocaldiff/view here,\nor not"


def test_where_a_script_has_no_blanks_a_line_is_broken_between_letters() -> None:
    assert wrapped("see 模型模型模型 or not", 11) == "see 模型模\n型模型 or\nnot"
    assert wrapped("see abc模型。模型", 11) == "see abc模\n型。模型", "no row begins with a full stop"
    assert wrapped("see 모형모형 모형", 11) == "see\n모형모형\n모형", "Korean has blanks"


@pytest.mark.parametrize("fence", ["```", "````", "~~~"])
def test_code_is_left_as_it_is(fence: str) -> None:
    code = f"{fence}sh -x\ncp one two three four\n\n  {'``' if fence == '~~~' else '~~~'} one two three\n{fence}\n"
    assert wrapped(f"one two three\n{code}one two three\n", 11) == f"one two\nthree\n{code}one two\nthree\n"


def test_code_in_a_list_is_code_and_code_within_a_line_is_not() -> None:
    assert wrapped("1. x\n   ```\n   one two three\n   ```\n", 11) == "1. x\n   ```\n   one two three\n   ```\n"
    assert wrapped("```one``` two three\none two three\n", 11) == "```one```\ntwo three\none two\nthree\n"
    assert wrapped("``` a ``` two three\n\n~~~ `\none two three\n", 11) == (
        "``` a ```\ntwo three\n\n~~~ `\none two three\n"
    )


@pytest.mark.parametrize("marks", ["- ", "10. ", "> ", "> 1) ", ">> "])
def test_a_fence_may_stand_after_marks_of_lists_and_quotes(marks: str) -> None:
    inner = marks if marks.strip(" >") == "" else "> " * (">" in marks) + "   "
    code = f"{marks}```\n{inner}one two three\n{inner}```\n"
    assert wrapped(f"{code}one two three\n", 11) == f"{code}one two\nthree\n"


def test_code_in_a_quote_ends_with_it_and_no_mark_of_a_quote_closes_other_code() -> None:
    code = "> ```\n> one two three\n"
    assert wrapped(f"{code}one two three\n", 11) == f"{code}one two\nthree\n"
    assert wrapped(f"{code}one\n> two three\n", 11) == f"{code}one\n> two\n  three\n", "nor does a later quote go on"
    code = "```\n> ```\n- ```\none two three\n```\n"
    assert wrapped(f"{code}one two three\n", 11) == f"{code}one two\nthree\n"


def test_a_fence_is_closed_by_marks_alone() -> None:
    code = "```\n```x one two three\n````\n"
    assert wrapped(f"{code}one two three\n", 11) == f"{code}one two\nthree\n"


def test_the_size_is_asked_for_each_piece() -> None:
    columns = [11]
    wrap = WordWrap(lambda: columns[0])
    narrow = wrap.add("one two three four\n")
    columns[0] = 40
    assert (narrow, wrap.add("one two three four\n")) == ("one two\nthree four\n", "one two three four\n")


def test_a_word_that_may_go_on_is_held_back() -> None:
    wrap = WordWrap(lambda: 11)
    assert [wrap.add("one tw"), wrap.add("o th"), wrap.add("ree "), wrap.end()] == ["one", " two", "\nthree", " "]
    assert wrap.add("one two\n") == "one two\n", "what comes behind the end begins a line"


@given(st.lists(st.sampled_from(_PIECES), max_size=60), st.integers(2, 30))
def test_pieces_are_broken_as_the_whole_is_and_nothing_but_blanks_is_lost(pieces: list[str], columns: int) -> None:
    text = "".join(pieces)
    wrap = WordWrap(lambda: columns)
    broken = "".join([*map(wrap.add, pieces), wrap.end()])
    assert broken == wrapped(text, columns)
    assert re.sub(r"\s", "", broken) == re.sub(r"\s", "", text)
    if "```" not in text and "~~~" not in text:  # a line that is broken before such marks begins with a fence
        assert wrapped(broken, columns) == broken


@given(st.lists(st.text("abc", min_size=1, max_size=9), min_size=1), st.integers(11, 30))
def test_no_row_reaches_the_last_column_and_none_could_take_the_next_word(words: list[str], columns: int) -> None:
    rows = wrapped(" ".join(words), columns).split("\n")
    assert " ".join(rows).split(" ") == words
    assert all(text_width(row) < columns for row in rows)
    assert all(
        text_width(f"{row} {below.split(' ')[0]}") >= columns for row, below in zip(rows, rows[1:], strict=False)
    )
