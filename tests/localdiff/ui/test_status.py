"""The status line comes, changes and goes without a trace."""

from __future__ import annotations

import io
import logging

import pytest

from localdiff.ui.output import Output, Stream
from localdiff.ui.status import StatusLine, progress_of, status_line
from tests.screens.terminal import FakeTerminal


def status_line_of(columns: int = 20, *, shown: bool = True) -> tuple[FakeTerminal, StatusLine]:
    """A new terminal, and a status line on it."""
    terminal = FakeTerminal(columns)
    return terminal, StatusLine(Stream(file=terminal, terminal=True, moving=True, width=columns), shown=shown)


def test_a_shorter_text_covers_a_longer_one() -> None:
    terminal, status = status_line_of()
    status.show("a long text")
    status.show("short")
    assert terminal.lines() == ["short"]
    assert terminal.screen.cursor.x == 5


def test_clearing_leaves_an_empty_row_and_the_cursor_at_its_start() -> None:
    terminal, status = status_line_of()
    status.show("something")
    terminal.write("^C")  # the terminal echoes what the user types
    status.clear()
    assert terminal.lines() == [""]
    assert (terminal.screen.cursor.x, terminal.screen.cursor.y) == (0, 0)


def test_a_line_above_stays() -> None:
    terminal, status = status_line_of()
    status.show("working")
    status.above("done: 1")
    status.above("done: 2")
    assert terminal.lines() == ["done: 1", "done: 2", "working"]


def test_it_never_wraps() -> None:
    terminal, status = status_line_of(12)
    for length in (10, 11, 12, 40):
        status.show("x" * length)
        assert terminal.screen.cursor.y == 0
    assert terminal.lines() == ["x" * 11]
    status.clear()
    assert terminal.lines() == [""]


def test_in_a_log_a_stage_that_lasts_has_a_line_and_one_now_and_then_says_how_far_it_is() -> None:
    log, now = io.StringIO(), 0.0
    output = Output(stdout=Stream(file=io.StringIO()), stderr=Stream(file=log))
    tell = progress_of(output, StatusLine(output.stderr), lambda: now)
    told = {
        0.1: "importing",
        1.5: "tile 1",
        2.0: "loading",  # too soon, and over before a line is due
        2.4: "tile 2",
        31.0: "tile 3",
        31.6: "tile 4",
        31.9: "step 1 of 2",
        40.0: "step 2 of 2",
    }
    for now, text in told.items():  # noqa: B007
        tell(text)
    assert log.getvalue().splitlines() == ["tile 1", "tile 4", "step 2 of 2"]


def test_in_a_log_the_first_line_may_begin_with_a_number() -> None:
    log = io.StringIO()
    output = Output(stdout=Stream(file=io.StringIO()), stderr=Stream(file=log))
    progress_of(output, StatusLine(output.stderr), iter((0.0, 1.5, 1.5)).__next__)("4bit-mine, step 1")
    assert log.getvalue() == "4bit-mine, step 1\n"


def test_progress_is_shown_in_place_where_a_line_can_move_and_nowhere_with_quiet() -> None:
    terminal, status = status_line_of()
    output = Output(stdout=Stream(file=io.StringIO()), stderr=status._stream)
    tell = progress_of(output, status)
    tell("step 1 of 2")
    tell("step 2 of 2")
    assert terminal.lines() == ["step 2 of 2"]
    log = io.StringIO()
    output = Output(stdout=Stream(file=io.StringIO()), stderr=Stream(file=log), quiet=True)
    progress_of(output, StatusLine(output.stderr), iter((0.0, 99.0)).__next__)("step 1 of 2")
    assert log.getvalue() == ""


@pytest.mark.parametrize("columns", [12, 13])
def test_wide_characters_are_two_columns(columns: int) -> None:
    terminal, status = status_line_of(columns)
    status.show("模型" * 9)
    assert terminal.lines() == ["模型" * 2 + "模" if columns == 12 else "模型" * 3]
    status.show("模")
    assert (terminal.lines(), terminal.screen.cursor.x, terminal.screen.cursor.y) == (["模"], 2, 0)
    status.clear()
    assert (terminal.lines(), terminal.screen.cursor.x) == ([""], 0)


def test_it_uses_no_escape_codes() -> None:
    terminal, status = status_line_of()
    status.show("a")
    status.above("b")
    status.clear()
    assert "\x1b" not in "".join(terminal.writes)


def test_nothing_happens_where_nothing_may_move() -> None:
    file = io.StringIO()
    for status in (StatusLine(Stream(file=file)), status_line_of(shown=False)[1]):
        status.show("never")
        status.clear()
        assert not status.shown
    StatusLine(Stream(file=file)).above("a line")
    assert file.getvalue() == "a line\n"


def test_a_terminal_that_another_job_has_gets_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, status = status_line_of()
    status.show("working")
    monkeypatch.setattr("localdiff.ui.output.is_in_background", lambda _stream: True)
    terminal.write("\n$ ")
    status.show("still working")
    status.above("done: 1")
    status.clear()
    assert terminal.lines() == ["working", "$ done: 1"]


def test_a_process_that_is_told_to_end_does_not_wait_for_a_terminal_that_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, status = status_line_of()
    status.show("something")
    monkeypatch.setattr("localdiff.ui.terminal.takes_output", lambda _file, *, patience: False)
    with pytest.raises(SystemExit):
        try:
            raise SystemExit(143)
        finally:
            status.clear()
    assert terminal.lines() == ["something"]


def streams(*, quiet: bool = False, terminal: bool = True) -> tuple[Output, io.StringIO]:
    paper = io.StringIO()
    stream = Stream(file=paper, terminal=terminal, moving=terminal)
    return Output(stdout=stream, stderr=stream, quiet=quiet), paper


def test_warnings_are_above_the_line_and_it_is_gone_after_an_error() -> None:
    output, paper = streams()
    with pytest.raises(ZeroDivisionError), status_line(output) as status:
        status.show("loading demo")
        logging.getLogger("localdiff.load").warning("a cost")
        raise ZeroDivisionError
    assert "warning: a cost\n" in paper.getvalue()
    assert paper.getvalue().rpartition("\r")[2].strip() == ""
    assert logging.getLogger("localdiff").handlers == []


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_warning_is_broken_between_words_as_an_error_is(terminal: bool) -> None:
    output, paper = streams(terminal=terminal)
    with status_line(output, shown=False):
        logging.getLogger("localdiff.load").warning("a " + "word " * 20 + "`A=b c`")
    assert paper.getvalue().count("\n") == 1 + terminal
    assert max(map(len, paper.getvalue().splitlines())) <= (80 if terminal else 200)
    assert "".join(paper.getvalue().splitlines()).replace(" ", "") == "warning:a" + "word" * 20 + "`A=bc`"


@pytest.mark.parametrize(
    ("quiet", "terminal", "drawn"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_the_line_is_where_somebody_sees_it(quiet: bool, terminal: bool, drawn: bool) -> None:
    output, paper = streams(quiet=quiet, terminal=terminal)
    with status_line(output) as status:
        status.show("loading demo")
    assert bool(paper.getvalue()) == drawn


def test_what_several_threads_warn_of_at_the_same_time_is_said_once() -> None:
    logger, (output, paper) = logging.getLogger("localdiff"), streams(terminal=False)

    def warn(text: str, seconds: float) -> None:
        record = logging.makeLogRecord({"msg": text, "levelno": logging.WARNING, "levelname": "WARNING"})
        record.created = seconds
        logger.handle(record)

    with status_line(output):
        for text, seconds in (("busy", 1.0), ("busy", 1.01), ("other", 1.02), ("busy", 1.03), ("busy", 4.0)):
            warn(text, seconds)
    assert paper.getvalue().splitlines() == [f"warning: {text}" for text in ("busy", "other", "busy", "busy")]


def test_no_message_controls_the_terminal() -> None:
    output, paper = streams(terminal=False)
    with status_line(output):
        logging.getLogger("localdiff").warning("a \x1b[2J name")
    assert paper.getvalue().startswith("warning: a ") and "\x1b" not in paper.getvalue()
