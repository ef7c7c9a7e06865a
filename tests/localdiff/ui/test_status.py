"""The status line comes, changes and goes without a trace."""

from __future__ import annotations

import io

import pyte

from localdiff.ui.output import Stream
from localdiff.ui.status import StatusLine


class Tty(io.StringIO):
    """A small terminal."""

    def __init__(self, columns: int = 20) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, 5)
        self._feed = pyte.Stream(self.screen)

    def write(self, text: str) -> int:
        self._feed.feed(text.replace("\n", "\r\n"))  # as the terminal driver does
        return super().write(text)

    def rows(self) -> list[str]:
        return "\n".join(row.rstrip() for row in self.screen.display).rstrip().split("\n")


def status_on(tty: Tty, *, shown: bool = True) -> StatusLine:
    return StatusLine(Stream(file=tty, terminal=True, moving=True, width=tty.screen.columns), shown=shown)


def test_a_shorter_text_covers_a_longer_one() -> None:
    tty = Tty()
    status = status_on(tty)
    status.show("a long text")
    status.show("short")
    assert tty.rows() == ["short"]
    assert tty.screen.cursor.x == 5


def test_clearing_leaves_an_empty_row_and_the_cursor_at_its_start() -> None:
    tty = Tty()
    status = status_on(tty)
    status.show("something")
    tty.write("^C")  # the terminal echoes what the user types
    status.clear()
    assert tty.rows() == [""]
    assert (tty.screen.cursor.x, tty.screen.cursor.y) == (0, 0)


def test_a_line_above_stays() -> None:
    tty = Tty()
    status = status_on(tty)
    status.show("working")
    status.above("done: 1")
    status.above("done: 2")
    assert tty.rows() == ["done: 1", "done: 2", "working"]


def test_it_never_wraps() -> None:
    tty = Tty(columns=12)
    status = status_on(tty)
    for length in (10, 11, 12, 40):
        status.show("x" * length)
        assert tty.screen.cursor.y == 0
    assert tty.rows() == ["x" * 11]
    status.clear()
    assert tty.rows() == [""]


def test_it_uses_no_escape_codes() -> None:
    tty = Tty()
    status = status_on(tty)
    status.show("a")
    status.above("b")
    status.clear()
    assert "\x1b" not in tty.getvalue()


def test_nothing_happens_where_nothing_may_move() -> None:
    file = io.StringIO()
    for status in (StatusLine(Stream(file=file)), status_on(Tty(), shown=False)):
        status.show("never")
        status.clear()
        assert not status.shown
    StatusLine(Stream(file=file)).above("a line")
    assert file.getvalue() == "a line\n"
