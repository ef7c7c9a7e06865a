"""The live canvas in a process of its own on a pseudo-terminal: killed, resized, hung up, redirected."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from localdiff.ui.region import RESTORE, SYNC_ON
from tests.fakes_canvas import Script
from tests.processes import ROOT, TIMEOUT, Terminal, environment
from tests.screens import CuttingScreen

TEXT = Script().text.rstrip("\n").split("\n")


def demo(*options: str, columns: int = 80, rows: int = 24, stdout: int | None = None) -> Terminal:
    """A scripted run on a terminal that it controls."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.live_demo", "--canvas", "64", *options],
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    return Terminal(child=child, master=master, screen=CuttingScreen(columns, rows, history=10_000))


def read_on(terminal: Terminal, seconds: float) -> None:
    """Read what comes within some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        terminal._read(0.05)


def echoes(terminal: Terminal) -> bool:
    return bool(termios.tcgetattr(terminal.master)[3] & termios.ECHO)


def assert_restored(terminal: Terminal) -> None:
    end = terminal.raw.decode(errors="replace")
    assert end.rindex(RESTORE) > end.rindex(SYNC_ON)
    assert not terminal.screen.cursor.hidden


def test_a_whole_run() -> None:
    terminal = demo("--rate", "60", columns=120)
    assert terminal.finish() == 0
    assert [line for line in terminal.lines() if line] == [
        line[i : i + 120].rstrip() for line in TEXT if line for i in range(0, len(line), 120)
    ]
    assert_restored(terminal)


def test_terminated_in_the_middle_of_a_block() -> None:
    terminal = demo("--stop-at", "4")
    terminal.wait_for("step  4/48")
    assert not echoes(terminal)
    terminal.child.send_signal(signal.SIGTERM)
    while terminal.child.poll() is None:
        terminal._read(0.05)
    assert echoes(terminal)
    assert terminal.finish() == 143
    assert terminal.lines() == [""]
    assert_restored(terminal)


def test_terminated_in_the_middle_of_a_frame() -> None:
    terminal = demo("--rate", "1000", "--fps", "1000", "--stop-at", "100000", "--repeat", "200", columns=200, rows=50)
    terminal.wait_for("settled")
    time.sleep(0.5)  # nobody reads: the terminal fills up and a frame stays half written
    terminal.child.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert terminal.finish() == 143
    assert_restored(terminal)
    assert not any(" settled " in line for line in terminal.lines())


@pytest.mark.parametrize("size", [(120, 24), (80, 40), (60, 24), (40, 24), (22, 24), (80, 5)], ids=str)
def test_resized(size: tuple[int, int]) -> None:
    columns, rows = size
    terminal = demo("--stop-at", "4")
    terminal.wait_for("step  4/48")
    terminal.screen.resize(rows, columns)
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    marks = {120: "back to noise", 80: "renoised", 60: " renoised", 40: "b1 s4/48", 22: "b1 s4/48"}
    terminal.wait_for("block 1 · step 4/48" if rows == 5 else marks[columns])
    read_on(terminal, 0.3)
    lines = terminal.lines()
    assert sum("4/48" in line for line in lines) == 1, lines
    terminal.child.send_signal(signal.SIGTERM)
    assert terminal.finish() == 143
    assert terminal.lines() == [""]


def test_hung_up() -> None:
    terminal = demo("--rate", "60")
    terminal.wait_for("settled")
    os.close(terminal.master)
    assert terminal.child.wait(TIMEOUT) != 0


def test_text_into_a_file_is_exact_and_the_canvas_stays_on_the_terminal(tmp_path: Path) -> None:
    with (tmp_path / "answer.txt").open("wb") as file:
        terminal = demo("--rate", "60", stdout=file.fileno())
        terminal.wait_for("settled")
        assert terminal.finish() == 0
    assert (tmp_path / "answer.txt").read_text(encoding="utf-8") == Script().text
    assert terminal.lines() == [""]
    assert_restored(terminal)


def test_the_reader_of_the_text_goes_away() -> None:
    reader, writer = os.pipe()
    terminal = demo("--rate", "30", stdout=writer)
    os.close(writer)
    terminal.wait_for("step")
    os.close(reader)
    assert terminal.finish() == 1
    assert any("BrokenPipeError" in line for line in terminal.lines()), "the script has no edge to word it"
    assert not any("settled" in line for line in terminal.lines())
    assert_restored(terminal)
