"""The live canvas of a real `localdiff run` on a pseudo-terminal: stopped, killed, resized, hung up, redirected."""

from __future__ import annotations

import os
import shlex
import signal
import termios
import time
from pathlib import Path

import pytest

from localdiff.ui.region import RESTORE, SYNC_OFF, SYNC_ON
from tests.fakes.canvas import SCRIPTS
from tests.screens.processes import TIMEOUT, Terminal, environment, terminal
from tests.screens.terminal import rows_of, torn

TEXT = SCRIPTS["latin"]
RUN = ("run", "-m", "demo", "hi")


def play(*options: str, columns: int = 80, rows: int = 24, **script: object) -> Terminal:
    """A made-up run on a terminal of its own."""
    return terminal(*RUN, *options, script={"canvas": "latin"} | script, columns=columns, rows=rows)


def everything(run: Terminal) -> list[str]:
    """Scrollback and screen."""
    above = run.screen.history.top  # type: ignore[attr-defined]
    rows = ["".join(row[x].data for x in range(run.screen.columns)).rstrip() for row in above]
    return rows + run.lines()


def keeps_output(run: Terminal) -> bool:
    """Whether output that the terminal has not read yet outlives Ctrl-C."""
    return bool(termios.tcgetattr(run.master)[3] & termios.NOFLSH)


def pull(run: Terminal, columns: int, rows: int) -> None:
    """Changes the size of the window after a whole frame for the old size.

    In the middle of a frame, the terminal itself would scroll away rows that the frame has just drawn.
    """
    while run._read(0):
        pass
    run.wait_until(lambda: run.raw.endswith(SYNC_OFF.encode()) or run.child.poll() is not None)
    run.resize(columns, rows)


def assert_restored(run: Terminal) -> None:
    assert_ends_restored(run.raw)
    assert not run.screen.cursor.hidden


def assert_ends_restored(raw: bytes) -> None:
    assert raw.rindex(RESTORE.encode()) > raw.rindex(SYNC_ON.encode())


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (50, 20), (20, 6)], ids=str)
def test_only_clean_text_and_the_footer_are_left(size: tuple[int, int]) -> None:
    columns, rows = size
    run = play(columns=columns, rows=rows)
    assert run.finish() == 0
    shown = everything(run)
    text = rows_of(TEXT, columns)
    assert shown[: len(text)] == text
    footer = "".join(shown[len(text) :])
    assert footer.startswith("198 tok")
    assert len(shown) <= len(text) + 2
    assert_restored(run)


def test_no_colours_at_all() -> None:
    for options, variables in (((), {"NO_COLOR": "1"}), (("--color", "never", "--palette", "heat"), {})):
        run = terminal(*RUN, *options, script={"canvas": "latin"}, env=environment(**variables))
        assert run.finish() == 0
        assert b"settled" in run.raw
        assert b"38;5;" not in run.raw


def test_a_palette_by_name() -> None:
    run = play("--palette", "heat")
    assert run.finish() == 0
    assert b"38;5;203" in run.raw


def test_ctrl_c_is_heard_at_once_and_keeps_what_is_final() -> None:
    run = play(hold_at=40)
    run.wait_for("block 2/")
    run.wait_for("step")
    run.type(b"\x03")
    assert run.finish() == 130
    shown = everything(run)
    assert shown[0] == rows_of(TEXT)[0]
    assert shown[-2].startswith("Stopped in block ")
    assert not any(" settled " in row or "^C" in row for row in shown)
    assert_restored(run)


def test_ctrl_c_during_a_long_step_says_that_it_was_heard(tmp_path: Path) -> None:
    is_over = tmp_path / "over"
    run = terminal(*RUN, script={"blocks": [{"steps": 1, "until": str(is_over)}]})
    run.wait_for("step  1/48")
    run.type(b"\x03")
    run.wait_for("stopping")
    is_over.touch()
    assert run.finish() == 130
    assert run.lines()[0] == "Stopped in block 1 at step 1; nothing was kept."


@pytest.mark.parametrize("twice", [False, True])
def test_terminated(twice: bool) -> None:
    run = play(hold_at=4)
    run.wait_for("step  4/48")
    assert not run.echoes()
    assert keeps_output(run)
    run.child.send_signal(signal.SIGTERM)
    if twice:
        run.child.send_signal(signal.SIGTERM)
    run.wait_until(lambda: run.child.poll() is not None, "its end")
    assert run.echoes()
    assert not keeps_output(run)
    # The second one may come when the terminal has been given back, and the signal's handler with it.
    assert run.finish() in ((143, -signal.SIGTERM) if twice else (143,))
    assert run.lines() == [""]
    assert_restored(run)


def test_terminated_in_the_middle_of_a_frame() -> None:
    run = play("--fps", "1000", rate=1000, repeat=200, columns=200, rows=50)
    run.wait_for("settled")
    time.sleep(0.5)  # nobody reads: the terminal fills up and a frame stays half written
    run.child.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert run.finish() == 143
    assert_restored(run)
    assert not any(" settled " in line for line in run.lines())


def test_an_exception_comes_after_the_text_and_takes_the_canvas_away() -> None:
    run = play(error_at=30)
    assert run.finish() == 1
    shown = everything(run)
    assert shown[0] == rows_of(TEXT)[0]
    assert "error: unexpected RuntimeError: the script says so" in shown
    assert not any(" settled " in row for row in shown)
    assert_restored(run)


def test_suspended_and_continued_by_a_shell() -> None:
    shell = '"$@"; echo "code $?"; stty -a | grep -o -- "[ -]echo "; fg > /dev/null; echo "code $?"'
    run = terminal(*RUN, script={"canvas": "latin", "hold_at": 4}, under=("bash", "-m", "-c", shell, "bash"))
    run.wait_for("step  4/48")
    run.type(b"\x1a")
    run.wait_for("code 148")
    run.wait_for(" echo")
    assert_ends_restored(run.raw[: run.raw.index(b"code 148")])  # it may be back by now
    run.wait_for("step  4/48")
    assert sum("step  4/48" in line for line in run.lines()) == 1, "the shell got a screen without our picture"
    run.type(b"\x03")
    run.wait_for("code 130")
    assert run.finish() == 0
    shown = run.lines()
    assert shown[-2] == "Stopped in block 1 at step 4; nothing was kept."
    assert not any("step  4/48" in line for line in shown)
    assert_restored(run)


@pytest.mark.parametrize("size", [(120, 24), (80, 40), (60, 24), (40, 24), (22, 24), (80, 5)], ids=str)
def test_resized(size: tuple[int, int]) -> None:
    columns, rows = size
    run = play(hold_at=4)
    run.wait_for("step  4/48")
    pull(run, columns, rows)
    before = run.raw.count(SYNC_OFF.encode())
    marks = {120: "back to noise", 80: "renoised", 60: " renoised", 40: "b1 s4/48", 22: "b1 s4/48"}
    run.wait_for("block 1 · step 4/48" if rows == 5 else marks[columns])
    run.wait_until(lambda: run.raw.count(SYNC_OFF.encode()) > before and run.raw.endswith(SYNC_OFF.encode()), "a frame")
    run.read_on(0.3)
    lines = run.lines()
    assert sum("4/48" in line for line in lines) == 1, lines
    run.child.send_signal(signal.SIGTERM)
    assert run.finish() == 143
    assert run.lines() == [""]


def test_resized_all_the_time() -> None:
    run = play(rate=40, repeat=2)
    run.wait_for("settled")
    for columns, rows in ((90, 24), (100, 30), (130, 40), (131, 20), (140, 8), (150, 24)) * 3:
        pull(run, columns, rows)
        run.read_on(0.1)
    assert run.finish() == 0
    words = " ".join(everything(run)).split()
    assert words.count("canvas,") >= 2
    assert not any(word.startswith("settled") for word in words)


def test_hung_up() -> None:
    run = play(hold_at=4)
    run.wait_for("step  4/48")
    os.close(run.master)
    assert run.child.wait(TIMEOUT) == 129


def test_text_into_a_file_is_exact_and_the_canvas_stays_on_the_terminal(tmp_path: Path) -> None:
    with (tmp_path / "answer.txt").open("wb") as file:
        run = terminal(*RUN, script={"canvas": "latin"}, stdout=file.fileno(), columns=100)
        run.wait_for("settled")
        assert run.finish() == 0
    assert (tmp_path / "answer.txt").read_text(encoding="utf-8") == TEXT
    (line,) = run.lines()
    assert line.startswith("198 tokens · ")
    assert_restored(run)


def test_events_into_a_file_and_the_canvas_on_the_terminal(tmp_path: Path) -> None:
    with (tmp_path / "events.jsonl").open("wb") as file:
        run = terminal(*RUN, "--events", "-", script={"canvas": "latin"}, stdout=file.fileno(), columns=100)
        run.wait_for("settled")
        assert run.finish() == 0
    lines = (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines[-1].startswith('{"schema":1,"event":"run_finished"')
    assert len(run.lines()) == 1, "the text is in the events, and here is the footer alone"


def test_the_reader_of_the_text_goes_away(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    pace = tmp_path / "pace"
    pace.touch()
    run = terminal(*RUN, script={"canvas": "latin", "pace": str(pace)}, stdout=writer)
    os.close(writer)
    run.wait_for("step  1/48")
    os.close(reader)
    pace.write_bytes(bytes(1000))
    assert run.finish() == 141
    assert run.lines() == [""]
    assert_restored(run)


def test_a_reader_that_prints_on_the_same_screen(tmp_path: Path) -> None:
    """The canvas steps aside for what comes out of the pipe, and leaves nothing beside it.

    Here it waits until the reader has printed; otherwise only for a moment, too short for one on a busy machine.
    """
    printed = tmp_path / "printed"
    printed.touch()
    shell = f'"$@" | tee {shlex.quote(str(printed))}; echo; echo "code ${{PIPESTATUS[0]}}"'
    script = {"canvas": "latin", "rate": 30, "printed": str(printed)}
    run = terminal(*RUN, script=script, under=("bash", "-c", shell, "bash"))
    run.wait_for("settled")
    assert run.finish() == 0
    shown = everything(run)
    text = torn(TEXT.rsplit("\n", 1)[0])
    printed = [row for row in shown if "tok/s" not in row]  # a slow reader may print after the footer
    assert printed[: len(text)] == text, "whole lines come as they are committed"
    assert "code 0" in shown
    assert not any(mark in row for row in shown for mark in ("┃", "settled)", "nats"))
    assert_restored(run)


def test_events_into_a_pipe_are_not_drawn_over() -> None:
    shell = '"$@" | cat'
    for option, marks in (("auto", 0), ("on", 1)):
        options = ("--events", "-") if option == "auto" else ("--events", "-", "--live", option)
        under = ("bash", "-c", shell, "bash")
        run = terminal(*RUN, *options, script={"blocks": [{"text": "Hi.", "steps": 9}], "pause": 0.05}, under=under)
        assert run.finish() == 0
        assert min(1, run.raw.decode().count("┃")) == marks


def test_one_line() -> None:
    run = play("--live", "line", rate=20)
    run.wait_for("settled")
    assert sum("settled" in line for line in run.lines()) == 1
    assert run.finish() == 0
    assert "┃" not in run.raw.decode()
    assert everything(run)[: len(rows_of(TEXT))] == rows_of(TEXT)


def test_slow_is_slow_and_says_so() -> None:
    start = time.monotonic()
    run = terminal(*RUN, "--slow", "0.5", script={"blocks": [{"text": "Hi.", "steps": 3}]}, columns=120)
    run.wait_for("slowed for viewing")
    assert run.finish() == 0
    assert time.monotonic() - start > 1.5
    assert "slowed for viewing; speed not measured" in run.lines()[-1]
    assert b"tok/s" not in run.raw


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_move_its_cursor(term: str) -> None:
    run = terminal(*RUN, script={"canvas": "latin"}, env=environment(TERM=term, NO_COLOR="1"))
    assert run.finish() == 0
    assert b"\x1b" not in run.raw
    assert everything(run)[: len(rows_of(TEXT))] == rows_of(TEXT)
