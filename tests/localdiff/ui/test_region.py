"""Rows that are drawn over, on a terminal in memory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from localdiff.ui.region import (
    CURSOR_OFF,
    ERASE_BELOW,
    LEAVE,
    RESTORE,
    SYNC_OFF,
    SYNC_ON,
    WRAP_OFF,
    WRAP_ON,
    Region,
)
from localdiff.view.layout import Size
from tests.screens.terminal import FakeTerminal

SIZE = Size(20, 10)


class Drawing:
    """A region on a terminal that has shown something before."""

    def __init__(self, before: int = 3, size: Size = SIZE, *, reflows: bool = False) -> None:
        self.terminal = FakeTerminal(size.columns, size.rows, reflows=reflows)
        self.terminal.write("".join(f"old {i}\n" for i in range(before)))
        self.region = Region()
        self.size = size

    def frame(self, *rows: str, above: str = "") -> str:
        text = self.region.frame(rows, self.size, above=above)
        self.terminal.write(text)
        return text

    def close(self, text: str = "") -> None:
        self.terminal.write(self.region.close(text))


@pytest.mark.parametrize("before", [0, 3, 8, 9, 30], ids=lambda n: f"{n} lines before")
def test_frames_stand_below_what_was_there(before: int) -> None:
    drawing = Drawing(before)
    old = [f"old {i}" for i in range(before)]
    drawing.frame("a", "b", "c")
    assert drawing.terminal.everything() == [*old, "a", "b", "c"]
    drawing.frame("a", "longer", "c")
    drawing.frame("x", "b", "")
    drawing.frame("x", "b", "c")
    assert drawing.terminal.everything() == [*old, "x", "b", "c"]
    drawing.close("final\n")
    assert drawing.terminal.everything() == [*old, "final"]
    assert drawing.terminal.screen.cursor.x == 0


@pytest.mark.parametrize("before", [3, 8, 9, 30], ids=lambda n: f"{n} lines before")
def test_rows_are_added_below_rows_that_stay(before: int) -> None:
    drawing = Drawing(before)
    drawing.frame("a", "b", "c")
    drawing.frame("a", "b", "c", "d", "", "f")
    assert drawing.terminal.everything() == [*(f"old {i}" for i in range(before)), "a", "b", "c", "d", "", "f"]


def test_only_rows_that_changed_are_sent() -> None:
    drawing = Drawing()
    drawing.frame("one", "two", "three")
    sent = drawing.frame("one", "TWO", "three")
    assert "TWO" in sent and "one" not in sent and "three" not in sent and CURSOR_OFF not in sent
    assert drawing.frame("one", "TWO", "three") == ""


def test_forgetting_sends_everything_again() -> None:
    drawing = Drawing()
    drawing.frame("one", "two")
    drawing.terminal.write("^C")
    drawing.region.forget()
    sent = drawing.frame("one", "two")
    assert "one" in sent and "two" in sent
    assert drawing.terminal.lines()[-2:] == ["one", "two"]


def test_a_frame_is_wrapped_in_marks_and_leaves_the_terminal_usable() -> None:
    drawing = Drawing()
    text = drawing.frame("one")
    assert text.startswith(SYNC_ON) and text.endswith(WRAP_ON + SYNC_OFF)
    assert text.index(WRAP_OFF) < text.index("one") < text.index(WRAP_ON)
    assert drawing.terminal.screen.cursor.hidden
    drawing.close()
    assert drawing.terminal.writes[-1].endswith(RESTORE)
    assert not drawing.terminal.screen.cursor.hidden


@pytest.mark.parametrize("before", [0, 5, 9, 30], ids=lambda n: f"{n} lines before")
def test_final_text_flows_out_above(before: int) -> None:
    drawing = Drawing(before)
    old = [f"old {i}" for i in range(before)]
    drawing.frame("a", "b", "c")
    drawing.frame("a", "b", "d", above="first\n\nsecond\n")
    assert drawing.terminal.everything() == [*old, "first", "", "second", "a", "b", "d"]
    drawing.frame("e", "f", "g", above="third\n")
    drawing.close("fourth\n")
    assert drawing.terminal.everything() == [*old, "first", "", "second", "third", "fourth"]


def test_text_longer_than_the_screen_flows_out_whole() -> None:
    drawing = Drawing(0)
    drawing.frame("a", "b")
    drawing.frame("a", "b", above="".join(f"line {i}\n" for i in range(40)))
    assert drawing.terminal.everything() == [*(f"line {i}" for i in range(40)), "a", "b"]


@pytest.mark.parametrize("length", [19, 20, 21, 39, 40, 41, 60])
def test_long_lines_are_broken_by_the_terminal_and_keep_every_letter(length: int) -> None:
    drawing = Drawing(2)
    drawing.frame("x" * 19, "y" * 19, "z" * 19)
    line = "".join(chr(ord("a") + i % 26) for i in range(length))
    drawing.frame("p", "q", "r", above=line + "\n")
    rows = [line[i : i + 20] for i in range(0, length, 20)]
    assert drawing.terminal.everything() == ["old 0", "old 1", *rows, "p", "q", "r"]


@pytest.mark.parametrize("columns", [20, 21])
@pytest.mark.parametrize("line", ["漢" * 10, "漢" * 11, "漢" * 21, "a" + "漢" * 10 + "b", "漢" * 20 + "ab"])
def test_wide_characters_leave_nothing_of_the_old_rows(columns: int, line: str) -> None:
    drawing = Drawing(2, Size(columns, 10))
    drawing.frame("x" * 19, "y" * 19, "z" * 19)
    drawing.frame("p", "q", "r", above=line + "\n")
    assert drawing.terminal.everything() == ["old 0", "old 1", *broken(line + "\n", columns), "p", "q", "r"]


@pytest.mark.parametrize("line", ["a\tb", "\t\tif x:", "\x1b[2m\tdim\x1b[0m", "a" * 19 + "\tb", "a\t" * 5])
def test_tabs_stay_tabs_and_leave_nothing_of_the_old_rows(line: str) -> None:
    drawing = Drawing(2)
    drawing.frame("x" * 19, "y" * 19, "z" * 19)
    assert line in drawing.frame("p", "q", "r", above=line + "\n")
    fresh = FakeTerminal(20, 10)
    fresh.write(f"old 0\nold 1\n{line}\np\nq\nr")
    assert drawing.terminal.everything() == fresh.everything()


@pytest.mark.parametrize("line", ["👩\u200d👧" + "a" * 16, "❤\ufe0f" + "a" * 18, "🇫🇷" + "a" * 16, "👍🏽" + "a" * 16])
@pytest.mark.parametrize("before", [0, 2])
def test_final_text_is_written_over_nothing(before: int, line: str) -> None:
    drawing = Drawing(before)
    drawing.frame("x" * 19, "y" * 19, "z" * 19)
    sent = drawing.frame("p", "q", "r", above=f"first\n{line}\nlast\n")
    # Erased before all of the text, not after a line: terminals differ in whether the last row of a line is full.
    assert f"{ERASE_BELOW}\rfirst\r\n{line}\r\nlast\r\n" in sent
    fresh = FakeTerminal(20, 10)
    fresh.write("".join(f"old {i}\n" for i in range(before)) + f"first\n{line}\nlast\np\nq\nr")
    assert drawing.terminal.everything() == fresh.everything()


def test_styled_text_leaves_nothing_of_the_old_rows() -> None:
    drawing = Drawing(0)
    drawing.frame("x" * 19, "y" * 19)
    drawing.frame("p", above="\x1b[2m" + "d" * 20 + "\x1b[0m\nshort\n")
    assert drawing.terminal.everything() == ["d" * 20, "short", "p"]


@pytest.mark.parametrize(("first", "second"), [(5, 2), (2, 5), (1, 8), (8, 1)])
@pytest.mark.parametrize("before", [0, 3, 20])
def test_the_region_may_change_its_height_between_blocks(first: int, second: int, before: int) -> None:
    drawing = Drawing(before)
    old = [f"old {i}" for i in range(before)]
    drawing.frame(*(f"a{i}" for i in range(first)))
    drawing.frame(*(f"b{i}" for i in range(second)))
    assert drawing.terminal.everything() == [*old, *(f"b{i}" for i in range(second))]
    drawing.frame(*(f"c{i}" for i in range(first)), above="text\n")
    assert drawing.terminal.everything() == [*old, "text", *(f"c{i}" for i in range(first))]


def test_an_empty_row_in_the_corner_of_the_screen_clears_what_is_below_it() -> None:
    drawing = Drawing(0)
    drawing.frame("", "a")
    drawing.frame("")
    assert trimmed(drawing.terminal.everything()) == [""]


ROWS = st.lists(st.text(alphabet="ab #", max_size=19), min_size=1, max_size=8)
TEXT = st.text(alphabet="abc 漢\n", max_size=60).map(lambda text: text + "\n" if text and text[-1] != "\n" else text)


@settings(max_examples=60)
@given(st.integers(0, 12), st.lists(st.tuples(ROWS, TEXT), min_size=1, max_size=8), TEXT)
def test_any_sequence_of_frames_leaves_only_final_text(
    before: int, frames: list[tuple[list[str], str]], rest: str
) -> None:
    drawing = Drawing(before)
    printed = [f"old {i}" for i in range(before)]
    for rows, above in frames:
        drawing.frame(*rows, above=above)
        printed += broken(above)
        assert trimmed(drawing.terminal.everything()) == trimmed([*printed, *(row.rstrip() for row in rows)])
        assert_nothing_is_erased_first(drawing.terminal.writes[-1])
    drawing.close(rest)
    assert trimmed(drawing.terminal.everything()) == trimmed(printed + broken(rest))


def assert_nothing_is_erased_first(write: str) -> None:
    """Erasing only happens after a row has just been written: the rest of that row, or what is below it."""
    for erasure in re.finditer(r"\x1b\[(\d*)[JK]", write):
        assert erasure[1] == ""
        # An empty row is erased in two parts, because the first column may be the corner of the screen.
        assert write.startswith(("\r", "\x1b[C\x1b[J\r"), erasure.end())


def broken(text: str, columns: int = 20) -> list[str]:
    """Text as a terminal breaks it: a wide character that does not fit the last column begins the next row."""
    rows: list[str] = []
    for line in text.split("\n")[:-1]:
        row = ""
        for character in line:
            if wcswidth(row + character) > columns:
                rows.append(row.rstrip())
                row = ""
            row += character
        rows.append(row.rstrip())
    return rows


def trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).rstrip("\n").split("\n")


@pytest.mark.parametrize("size", [Size(30, 10), Size(20, 14), Size(20, 7), Size(40, 8)], ids=str)
@pytest.mark.parametrize("reflows", [False, True])
def test_after_a_resize_that_breaks_no_row_nothing_is_left_over(size: Size, reflows: bool) -> None:
    drawing = Drawing(4, reflows=reflows)
    drawing.frame("a" * 19, "b" * 19, "c" * 19)
    drawing.terminal.resize(*size)
    drawing.size = size
    drawing.frame("d", "e", "f", "g")
    assert drawing.terminal.everything() == [*(f"old {i}" for i in range(4)), "d", "e", "f", "g"]


@pytest.mark.parametrize("reflows", [False, True])
def test_getting_narrower_leaves_nothing_over_and_eats_nothing(reflows: bool) -> None:
    drawing = Drawing(4, reflows=reflows)
    drawing.frame("a" * 19, "b" * 5, "c" * 19)
    drawing.size = Size(12, 10)
    drawing.terminal.resize(12, 10)
    drawing.frame("d", "e", "f")
    assert drawing.terminal.everything() == [*(f"old {i}" for i in range(4)), "d", "e", "f"]


def in_flight(drawing: Drawing, size: Size, *rows: str, above: str = "") -> None:
    """Sends a frame that was composed before the window got this size, and is read afterwards."""
    text = drawing.region.frame(rows, drawing.size, above=above)
    drawing.terminal.resize(*size)
    drawing.terminal.write(text)
    drawing.size = size


@pytest.mark.parametrize("above", ["", "final\n"])
@pytest.mark.parametrize("height", [0, 4, 8], ids=lambda n: f"{n} rows before")
@pytest.mark.parametrize("before", [0, 3, 8, 30], ids=lambda n: f"{n} lines before")
def test_a_window_that_has_become_lower_when_it_reads_a_frame(before: int, height: int, above: str) -> None:
    drawing = Drawing(before)
    if height:
        drawing.frame(*"abcdefgh"[:height])
    in_flight(drawing, Size(20, 5), *"ABCDEFGH", above=above)
    drawing.frame("i", "j")
    shown = [row for row in drawing.terminal.everything() if row]
    assert shown == [*(f"old {i}" for i in range(before)), *above.split(), "i", "j"]


WINDOWS = st.builds(Size, st.just(20), st.integers(3, 12))


@settings(max_examples=100)
@given(st.integers(0, 12), st.lists(st.tuples(ROWS, TEXT, WINDOWS), min_size=1, max_size=8), TEXT)
def test_any_frames_in_flight_while_the_window_changes_its_height_leave_only_final_text(
    before: int, frames: list[tuple[list[str], str, Size]], rest: str
) -> None:
    drawing = Drawing(before)
    printed = [f"old {i}" for i in range(before)]
    for rows, above, size in frames:
        in_flight(drawing, size, *(f"|{row[:18]}" for row in rows[: drawing.size.rows - 1]), above=above)
        printed += broken(above)
    drawing.close(rest)
    printed += broken(rest)
    assert [row for row in drawing.terminal.everything() if row] == [row for row in printed if row]


def test_beginning_anew_leaves_everything_above_alone() -> None:
    drawing = Drawing(1)
    drawing.frame("a", "b")
    drawing.terminal.write(LEAVE + "[1]+ Stopped\r\n$ fg\r\n")
    drawing.region.abandon()
    drawing.frame("c", "d")
    assert drawing.terminal.everything() == ["old 0", "[1]+ Stopped", "$ fg", "c", "d"]
