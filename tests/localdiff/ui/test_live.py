"""The live canvas from events to a clean screen, with real threads and a terminal in memory."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from localdiff.events import BlockCommitted, BlockStarted, DenoiseStep, Event, RunFinished, TextCommitted
from localdiff.ui.live import LiveView
from localdiff.ui.region import RESTORE
from localdiff.ui.watch import Watch
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from tests.fakes.canvas import SCRIPTS, Script, pieces_of
from tests.screens.terminal import FakeTerminal, rows_of


class BlockedTerminal(FakeTerminal):
    """A terminal that takes nothing until it is let go, as after Ctrl-S."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.free.wait(30)
        return super().write(text)


class BrokenTerminal(FakeTerminal):
    """A terminal whose other end has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def view_on(terminal: FakeTerminal, script: Script, **options: Any) -> LiveView:
    settings: dict[str, Any] = {
        "stream": terminal,
        "pieces": script.vocabulary,
        "palette": DARK,
        "fps": 1000,
        "size": lambda: Size(terminal.screen.columns, terminal.screen.lines),
    }
    watched = {field.name for field in dataclasses.fields(Watch)}
    watch = {"prints": ("answer", "thought")} | {name: options.pop(name) for name in watched & options.keys()}
    return LiveView(watch=Watch(**watch), **(settings | options))


def play(terminal: FakeTerminal, script: Script, until: Callable[[Event], bool] = lambda event: False, **options: Any):
    with view_on(terminal, script, **options) as live:
        for event in script.events():
            live.on_event(event)
            if until(event):
                return live
    return live


@pytest.mark.parametrize("size", [Size(120, 40), Size(80, 24), Size(50, 20), Size(20, 6)], ids=str)
def test_after_the_run_only_text_is_left(size: Size) -> None:
    terminal, script = FakeTerminal(*size), Script(canvas=64)
    terminal.write("$ localdiff run\n")
    play(terminal, script)
    assert terminal.everything() == ["$ localdiff run", *rows_of(script.text, size.columns)]
    assert not terminal.screen.cursor.hidden
    assert terminal.writes[-1].endswith(RESTORE)


def test_hostile_text_is_printed_safely() -> None:
    terminal = FakeTerminal()
    play(terminal, Script(text=SCRIPTS["hostile"], canvas=64))
    shown = "".join(terminal.everything())
    assert "red ▯[31m clear ▯[2J" in shown
    assert "owned" not in terminal.screen.title


def test_scrollback_never_holds_anything_but_final_text() -> None:
    terminal, script = FakeTerminal(80, 10), Script(text=SCRIPTS["latin"] * 6, canvas=64)
    play(terminal, script)
    assert len(terminal.scrollback()) > 20
    assert terminal.everything() == rows_of(script.text), "what has once been in the scrollback stays there"


def test_paragraphs_leave_as_soon_as_the_next_block_starts() -> None:
    terminal, script = FakeTerminal(), Script(canvas=96)
    play(terminal, script)
    first = rows_of(script.text)[0]
    frames = [shown for shown in terminal.shown if any("block 2/≤8 · step  0" in row for row in shown)]
    assert frames
    for shown in frames:
        head = next(index for index, row in enumerate(shown) if "block 2" in row)
        assert shown[0] == first and shown[head - 1] == "", "the finished paragraph stands above"
        assert "Some guesses" in shown[head + 1], "the unfinished one goes on in the canvas"


def test_no_frame_has_an_empty_page() -> None:
    terminal = FakeTerminal()
    play(terminal, Script(canvas=64))
    frames = [shown for shown in terminal.shown if any("settled" in row for row in shown)]
    blocks = {event.block for event in Script(canvas=64).events() if isinstance(event, BlockStarted)}
    assert len(frames) >= 2 * len(blocks)
    for shown in frames:
        head = next(index for index, row in enumerate(shown) if " settled ·" in row)
        assert len("".join(shown[head + 1 : -2])) > 100, shown


def test_the_first_and_the_last_frame_of_every_block_are_drawn() -> None:
    terminal, script = BlockedTerminal(), Script(canvas=64)
    events = list(script.events())
    last = {event.block: event.steps for event in events if isinstance(event, BlockCommitted)}
    with view_on(terminal, script) as live:
        for event in events[:-1]:
            live.on_event(event)
        terminal.free.set()
        live.on_event(events[-1])
    headers = [row for shown in terminal.shown for row in shown if "settled" in row and "block" in row]
    for block, steps in last.items():
        assert any(f"block {block}/" in row and "step  0/48" in row for row in headers)
        assert any(f"block {block}/" in row and f"step {steps:2}/48" in row for row in headers)


def test_the_engine_never_waits_for_the_screen() -> None:
    terminal, script = BlockedTerminal(), Script(canvas=64)
    events = list(script.events())
    steps = [event for event in events if isinstance(event, DenoiseStep)]
    live = view_on(terminal, script)
    for event in events[:4]:
        live.on_event(event)
    assert terminal.reached.wait(30)
    for index in range(10_000):
        live.on_event(steps[index % 5])
    assert terminal.writes == [], "all events were taken while the terminal took nothing"
    terminal.free.set()
    live.close()
    assert len(terminal.writes) < 20, "frames in between were left out"


def test_text_for_another_stream_is_not_shown_twice() -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)
    terminal.write("$ localdiff run > file\n")
    play(terminal, script, prints=())
    assert terminal.everything() == ["$ localdiff run > file"]


def test_what_was_committed_is_printed_when_the_run_breaks_off() -> None:
    terminal, script = FakeTerminal(), Script(canvas=96)

    def is_in_block_two(event: Event) -> bool:
        return isinstance(event, DenoiseStep) and event.block == 2

    with pytest.raises(RuntimeError, match="out of memory"), view_on(terminal, script) as live:
        for event in script.events():
            live.on_event(event)
            if is_in_block_two(event):
                raise RuntimeError("out of memory")
    committed = next(event.text for event in script.events() if isinstance(event, TextCommitted))
    assert terminal.everything() == rows_of(committed)
    assert not terminal.screen.cursor.hidden


def test_a_stopped_draft_leaves_no_trace() -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)
    play(terminal, script, until=lambda event: isinstance(event, DenoiseStep))
    assert terminal.everything() == [""]


def test_the_end_of_a_run_takes_the_canvas_away_before_anybody_else_prints() -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)
    with view_on(terminal, script) as live:
        for event in script.events():
            live.on_event(event)
            if isinstance(event, RunFinished):
                terminal.write("143 tok/s\n")
        live.close()
    assert terminal.everything() == [*rows_of(script.text), "143 tok/s"]


def test_remarks_stand_above_the_canvas_and_plainly_around_it() -> None:
    terminal, script = FakeTerminal(), Script(text="Short.", canvas=64)
    events = list(script.events())
    with view_on(terminal, script) as live:
        live.above("before")
        for event in events:
            live.on_event(event)
            if isinstance(event, BlockStarted):
                live.above("warning: \x1b[31mred")
        live.above("after")
    assert terminal.everything() == ["before", "warning: ▯[31mred", "Short.", "after"]


def test_a_terminal_that_is_gone_ends_a_run_whose_text_was_for_it() -> None:
    script = Script(canvas=64)
    with pytest.raises(BrokenPipeError), view_on(BrokenTerminal(), script) as live:
        for event in script.events():
            live.on_event(event)


def test_a_terminal_that_is_gone_does_not_end_a_run_whose_text_goes_elsewhere() -> None:
    finished = False
    script = Script(canvas=64)
    with view_on(BrokenTerminal(), script, prints=()) as live:
        for event in script.events():
            live.on_event(event)
            finished = isinstance(event, RunFinished)
    assert finished


def test_a_fault_in_drawing_is_reported_and_the_text_is_printed_all_the_same() -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)

    def piece(token: int) -> str:
        raise LookupError(f"no piece {token}")

    with pytest.raises(LookupError, match="no piece"):
        play(terminal, script, pieces=pieces_of(piece))
    assert terminal.everything() == rows_of(script.text)


def test_leaving_by_an_error_does_not_wait_for_a_stuck_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localdiff.ui.live._PATIENCE_SECONDS", 0.01)
    terminal, script = BlockedTerminal(), Script(canvas=64)
    with pytest.raises(SystemExit), view_on(terminal, script) as live:
        live.on_event(next(script.events()))
        assert terminal.reached.wait(30)
        raise SystemExit(143)
    assert terminal.writes == []
    terminal.free.set()
    live._guard.stop()


def test_a_signal_that_comes_before_drawing_has_begun_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    terminal, script = FakeTerminal(), Script(canvas=64)
    with pytest.raises(KeyboardInterrupt), view_on(terminal, script) as live:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        for event in script.events():
            live.on_event(event)
    assert terminal.everything() == [""]


def test_no_frame_comes_between_giving_the_terminal_back_and_ctrl_z(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)
    composing, stopping = threading.Event(), threading.Event()
    frames: list[int] = []

    def size() -> Size:
        if stopping.is_set():
            composing.set()
            time.sleep(0.1)  # a frame that is being composed when the signal comes
        return Size(80, 24)

    def stop(_pid: int, _signal: int) -> None:
        for _ in range(2):
            frames.append(len(terminal.writes))
            time.sleep(0.3)

    monkeypatch.setattr("localdiff.ui.terminal_signals._PATIENCE", 30.0)
    monkeypatch.setattr("localdiff.ui.terminal_signals.os.kill", stop)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)  # whatever handler was left
    with view_on(terminal, script, size=size) as live:
        for event in script.events():
            live.on_event(event)
            if isinstance(event, DenoiseStep) and event.step == 3:
                stopping.set()
                assert composing.wait(30)
                signal.raise_signal(signal.SIGTSTP)
                break
    assert frames[0] == frames[1] > 0
    assert live._thread is not None and not live._thread.is_alive(), "it draws on once the process goes on"


def test_slow_waits_after_each_step_and_says_so() -> None:
    terminal, script = FakeTerminal(120, 40), Script(text="Short.", canvas=64)
    naps: list[float] = []
    play(terminal, script, slow=0.12, sleep=naps.append)
    steps = sum(isinstance(event, DenoiseStep) for event in script.events())
    assert sum(naps) == pytest.approx(0.12 * steps)
    assert max(naps) <= 0.05, "Ctrl-C is noticed soon"
    assert any("slowed for viewing" in row for shown in terminal.shown for row in shown)
    assert not any("/s" in row for shown in terminal.shown for row in shown)


def test_a_cancelled_run_does_not_wait() -> None:
    naps: list[float] = []
    play(FakeTerminal(), Script(text="Short.", canvas=64), slow=5, sleep=naps.append, cancelled=lambda: True)
    assert naps == []


def test_one_line() -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)
    terminal.write("$\n")
    play(terminal, script, one_line=True)
    assert terminal.everything() == ["$", *rows_of(script.text)]
    lines = {row for shown in terminal.shown for row in shown if row.startswith("block 1 ·")}
    assert lines and all(row.endswith("/64 settled") for row in lines)
    assert not any("┃" in row for shown in terminal.shown for row in shown)


def test_thoughts_are_printed_dim() -> None:
    terminal, script = FakeTerminal(), Script(canvas=64)
    with view_on(terminal, script) as live:
        live.on_event(TextCommitted(block=1, channel="thought", text="hm"))
        live.on_event(TextCommitted(block=1, channel="answer", text="yes"))
    assert terminal.everything() == ["hm", "yes"]
    assert "\x1b[0;2mhm\x1b[0m" in terminal.writes[-1]


def test_a_continued_answer_begins_with_its_unfinished_line_and_goes_on_with_its_code() -> None:
    terminal, script = FakeTerminal(11, 20), Script(text="o three\n```\none two three\n", canvas=64)
    play(terminal, script, begun="```\nx\none tw")
    assert terminal.everything() == ["one two thr", "ee", "```", "one two", "three"]


def test_the_answer_may_be_laid_out_by_somebody_else() -> None:
    """The renderer gets only the answer, and the width of the terminal; its result is printed unchanged."""
    terminal, script = FakeTerminal(60, 20), Script(text=SCRIPTS["latin"], canvas=64)
    widths: list[int] = []
    laid_out: list[str] = []

    def render(text: str, columns: int) -> str:
        widths.append(columns)
        numbers = [str(number) for number, _ in enumerate(text.splitlines(), 1)]
        laid_out.extend(numbers)
        return "".join(f"\x1b[1m{number}\x1b[0m\n" for number in numbers)

    play(terminal, script, render=render)
    shown = terminal.everything()
    assert set(widths) == {60}
    assert shown == laid_out and len(laid_out) > 3
