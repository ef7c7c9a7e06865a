"""Progress on a terminal, on a pipe, and kept quiet."""

from __future__ import annotations

import io
import re
import signal
import threading
from typing import TextIO

import pytest
from rich.console import Console
from rich.live import Live

from localdiff.ui.output import Output, Stream
from localdiff.ui.progress import Bars, Lines, ProgressDisplay, progress_display
from localdiff.ui.progress_terminal import ProgressTerminal
from localdiff.ui.region import CURSOR_OFF
from tests.fakes.clock import FakeClock
from tests.screens.terminal import FakeTerminal

GB = 10**9


@pytest.fixture(autouse=True)
def _a_terminal_that_moves_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def output(file: TextIO, *, moving: bool = False, quiet: bool = False, width: int = 100) -> Output:
    stream = Stream(file=file, terminal=moving, moving=moving, width=width)
    return Output(stdout=Stream(file=io.StringIO()), stderr=stream, quiet=quiet)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_bars_of_the_whole_and_of_each_file(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    terminal = FakeTerminal(100, 24)
    with progress_display(output(terminal, moving=True), clock=clock) as bars:
        assert isinstance(bars, Bars)
        bars.start("quantize", 52 * GB, whole=True)
        bars.start("model-00003.safetensors", 5 * GB)
        for second in range(11):
            bars.show("quantize", second * GB, "layers.9.experts")
            bars.show("model-00003.safetensors", second * GB // 4)
            clock.now += 1
        bars._bars.refresh()
        lines = terminal.lines()
        assert any(line.startswith("quantize") and "10.0/52.0 GB  909 MB/s  46s left" in line for line in lines), lines
        assert any("layers.9.experts" in line for line in lines)
        assert any(line.startswith("  model-00003.safetensors") and "2.5/5.0 GB" in line for line in lines)
        assert any(line.count("━") == 3 and "10.0/52.0 GB" in line for line in lines), "a fifth of 18 columns"
        bars.note("note: \x1b[31mthe connection broke\n off :boom:")
        bars.end("model-00003.safetensors")
        bars._bars.refresh()
        assert not any("model-00003" in line for line in terminal.lines())
    assert terminal.lines() == ["note: \\x1b[31mthe connection broke\\n off :boom:"]
    assert "\x1b[31m" not in "".join(terminal.writes)


def test_without_colour_there_is_none_and_a_note_is_broken_by_the_terminal_alone(clock: FakeClock) -> None:
    terminal, note = FakeTerminal(40, 24), "a path that is copied whole: " + 9 * "/folder with blanks"
    with progress_display(output(terminal, moving=True, width=40), clock=clock) as bars:
        bars.start("fetch", GB, whole=True)
        bars.note(note)
    assert note in "".join(terminal.writes)
    assert not re.search(r"\x1b\[[0-9;]*m", "".join(terminal.writes))


def test_a_bar_that_stands_still_loses_its_rate_and_its_end(clock: FakeClock) -> None:
    terminal = FakeTerminal(100, 24)
    with progress_display(output(terminal, moving=True), clock=clock) as bars:
        assert isinstance(bars, Bars)
        bars.start("fetch", 52 * GB, whole=True)
        for second in range(11):
            bars.show("fetch", second * GB)
            clock.now += 1
        bars._bars.refresh()
        assert any("left" in line for line in terminal.lines())
        clock.now += 60
        bars._bars.refresh()
        assert not any("left" in line or "/s" in line for line in terminal.lines())


@pytest.mark.parametrize("columns", [24, 40, 79, 200])
def test_bars_fit_the_terminal(clock: FakeClock, columns: int) -> None:
    terminal = FakeTerminal(columns, 24)
    with progress_display(output(terminal, moving=True, width=columns), clock=clock) as bars:
        assert isinstance(bars, Bars)
        bars.start("quantize", 52 * GB, whole=True)
        bars.show("quantize", GB, "model.decoder.layers.9.experts.gate_up_proj " * 9)
        bars._bars.refresh()
        assert len([line for line in terminal.lines() if line]) == 1
    assert terminal.lines() == [""]


@pytest.mark.parametrize("columns", [54, 60, 80, 99, 100, 120, 200])
@pytest.mark.parametrize("fetching", [False, True])
def test_names_and_details_give_way_to_figures(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, columns: int, fetching: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = FakeTerminal(columns, 24)
    with progress_display(output(terminal, moving=True, width=columns), clock=clock) as bars:
        assert isinstance(bars, Bars)
        bars.start("quantize", 52 * GB, whole=True)
        if fetching:
            bars.start("model-00003-of-00011.safetensors", 5 * GB)
        for second in range(11):
            bars.show("quantize", second * GB, "worst error 0.4 %   layers.0.experts.gate_up_proj")
            clock.now += 1
        bars._bars.refresh()
        line = next(line for line in terminal.lines() if line.startswith("quantize"))
        words = line.split("10.0/52.0 GB  909 MB/s  46s left")
        assert len(words) == 2, line
        assert re.search("[━╸]", words[0]), line
        assert words[1].strip() in ("", "worst error 0.4 %", "worst error 0.4 %   layers.0.experts.gate_up_proj")
        assert bool(words[1].strip()) == (columns >= 100)
        assert not fetching or any(line.startswith("  model-0") for line in terminal.lines())


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_name_with_blanks_stays_in_its_line(clock: FakeClock, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = FakeTerminal(columns, 24)
    with progress_display(output(terminal, moving=True, width=columns), clock=clock) as bars:
        assert isinstance(bars, Bars)
        bars.start("a folder with blanks in its name/" * 5 + "model.safetensors", 5 * GB)
        bars._bars.refresh()
        (line,) = (line for line in terminal.lines() if line)
        assert line.startswith("  a folder with") and "0.0/5.0 GB" in line


def test_no_bar_is_drawn_between_giving_the_terminal_back_and_ctrl_z(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = ProgressTerminal(Stream(file=FakeTerminal(), terminal=True, moving=True))
    live = Live(console=Console(file=terminal.file, force_terminal=True), auto_refresh=False)
    could_draw: list[bool] = []

    def stop(_pid: int, _signal: int) -> None:
        other = threading.Thread(target=lambda: could_draw.append(live._lock.acquire(blocking=False)))
        other.start()
        other.join()

    monkeypatch.setattr("localdiff.ui.terminal_signals.os.kill", stop)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)  # whatever handler was left
    with terminal.watch(live):
        signal.raise_signal(signal.SIGTSTP)
    assert could_draw == [False]


def test_ctrl_z_as_a_frame_is_written_hides_the_cursor_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(FakeTerminal):
        def write(self, text: str) -> int:
            if text == "first":
                signal.raise_signal(signal.SIGTSTP)
            return super().write(text)

    screen = Stopped()
    terminal = ProgressTerminal(Stream(file=screen, terminal=True, moving=True))
    monkeypatch.setattr("localdiff.ui.terminal_signals.os.kill", lambda _pid, _signal: None)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)  # whatever handler was left
    with terminal:
        terminal.write("first")
        terminal.write("second")
    assert screen.writes == ["first", CURSOR_OFF + "second"]


def test_lines_every_tenth(clock: FakeClock) -> None:
    file = io.StringIO()
    with progress_display(output(file), clock=clock) as lines:
        assert isinstance(lines, Lines)
        lines.start("quantize", 50 * GB, whole=True)
        lines.start("a file", 5 * GB)
        for second in range(26):
            lines.show("quantize", second * GB)
            lines.show("a file", second)
            clock.now += 1
    written = file.getvalue().splitlines()
    assert [line.split(":")[0] for line in written] == [f"quantize {percent} %" for percent in (10, 20, 30, 40, 50)]
    assert written[-1] == "quantize 50 %: 25.0/50.0 GB, 1.0 GB/s, 25s left"


def test_lines_every_half_minute_where_it_is_slow(clock: FakeClock) -> None:
    file = io.StringIO()
    with progress_display(output(file), clock=clock) as lines:
        lines.start("fetch", 50 * GB, whole=True)
        for second in range(100):
            lines.show("fetch", second * 10**6)
            clock.now += 1
    assert [line.split(":")[0] for line in file.getvalue().splitlines()] == ["fetch 0 %"] * 3


def test_what_is_soon_over_has_few_lines(clock: FakeClock) -> None:
    file = io.StringIO()
    with progress_display(output(file), clock=clock) as lines:
        lines.start("check", 100, whole=True)
        for done in range(101):
            lines.show("check", done)
            clock.now += 0.02
    assert [line.split(":")[0] for line in file.getvalue().splitlines()] == ["check 51 %"]


def test_what_starts_over_does_not_repeat_its_lines(clock: FakeClock) -> None:
    file = io.StringIO()
    with progress_display(output(file), clock=clock) as lines:
        lines.start("fetch", 100, whole=True)
        for done in (20, 0, 20, 30):
            clock.now += 2
            lines.show("fetch", done)
    assert [line.split(":")[0] for line in file.getvalue().splitlines()] == ["fetch 20 %", "fetch 30 %"]


def test_quiet_is_quiet(clock: FakeClock) -> None:
    file = io.StringIO()
    with progress_display(output(file, quiet=True), clock=clock) as silent:
        assert type(silent) is ProgressDisplay
        silent.start("fetch", 100, whole=True)
        silent.show("fetch", 50)
        silent.note("x")
        silent.end("fetch")
    assert file.getvalue() == ""
