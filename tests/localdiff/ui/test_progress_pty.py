"""Progress bars on a pseudo-terminal: stopped, sent to the background and fetched back, ended with Ctrl-\\."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import termios
from pathlib import Path

import pytest

from localdiff.ui.region import CURSOR_ON
from tests.screens.processes import TIMEOUT, Terminal, terminal, with_jobs

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")

PROGRAM = """
import resource, select, signal, sys, threading
from localdiff.ui.interrupt import cancel_on_interrupt
from localdiff.ui.output import decide
from localdiff.ui.progress import progress_display

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

def line():
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        if stop.is_set():  # Python handles a signal that comes right before a read only after it, which may never end
            return "end"
    return input()

stop = threading.Event()
with cancel_on_interrupt(stop), progress_display(decide(), interrupted=stop.is_set) as shown:
    shown.start("whole", 10**9, whole=True)
    shown.start("part", 10**9)
    shown.show("whole", 10**8)
    while line() != "end":
        shown.note("noted")
print("ended")
"""


def play(line: str) -> Terminal:
    """The program as the command of a line for a shell with job control; Enter adds a note, `end` ends it."""
    return terminal(under=(*with_jobs(line), sys.executable, "-c", PROGRAM), columns=100, rows=24)


def test_ctrl_z_leaves_nothing_and_the_bars_come_back_below() -> None:
    run = play('"$@"; echo "stopped with $?"; read -r; fg > /dev/null')
    run.wait_for("part")
    assert run.screen.cursor.hidden
    run.type(b"\x1a")
    run.wait_for("stopped with 148")
    assert not run.screen.cursor.hidden
    assert not any("GB" in line for line in run.lines())
    run.type(b"\n")
    run.wait_for("part")
    assert run.screen.cursor.hidden
    assert any("stopped with 148" in line for line in run.lines()), "what was printed meanwhile stays"
    run.type(b"end\n")
    assert run.finish() == 0
    assert run.lines()[-1] == "ended"
    assert not run.screen.cursor.hidden


def test_keys_are_not_echoed_into_the_bars() -> None:
    run = play('"$@"; echo "stopped with $?"; read -r line; echo "read $line"; fg > /dev/null; stty -a')
    run.wait_for("part")
    run.type(b"typed")
    run.type(b"\n")
    run.wait_for("noted")
    assert b"typed" not in run.raw
    run.type(b"\x1a")
    run.wait_for("stopped with 148")
    run.type(b"hello\n")
    run.wait_for("read hello")
    assert b"hello\r\nread hello" in run.raw, "between the two the shell has its echo"
    run.wait_for("part")
    run.type(b"end\n")
    assert run.finish() == 0
    assert b"end\r\n" not in run.raw.replace(b"ended\r\n", b"")
    assert re.search(rb" echo\b", run.raw) is not None


def test_what_was_typed_before_it_is_stopped_is_no_command_of_the_shell() -> None:
    run = play('"$@"; echo "stopped with $?"; read -r line; echo "read <$line>"; fg > /dev/null')
    run.wait_for("part")
    run.type(b"touch\x1a")
    run.wait_for("stopped with 148")
    run.type(b"\n")
    run.wait_for("read <")
    assert "read <>" in run.lines()
    run.wait_for("part")
    run.type(b"end\n")
    assert run.finish() == 0


def test_what_was_typed_before_ctrl_c_is_no_command_of_the_shell() -> None:
    run = play('"$@"; read -r line; echo "read <$line>"')
    run.wait_for("part")
    run.type(b"touch\x03")
    run.wait_for("ended")
    run.type(b"\n")
    assert run.finish() == 0
    assert run.lines()[-1] == "read <>"


def test_in_the_background_the_screen_is_left_alone(tmp_path: Path) -> None:
    typed = tmp_path / "typed"
    os.mkfifo(typed)
    run = play(f'"$@" < {shlex.quote(str(typed))}; echo stopped; bg > /dev/null; wait')
    with typed.open("w") as keys:
        run.wait_for("part")
        run.type(b"\x1a")
        run.wait_for("stopped")
        keys.write("\nend\n")
    assert run.finish() == 0
    after = bytes(run.raw[run.raw.index(b"stopped") :])
    assert b"\x1b" not in after
    assert b"noted\r\nended\r\n" in after
    assert not run.screen.cursor.hidden


def test_fetched_from_there_without_a_signal_no_key_is_echoed(tmp_path: Path) -> None:
    """As with `fg` of bash: a job that `bg` already runs gets no SIGCONT, and the shell has turned echo on."""
    typed = tmp_path / "typed"
    os.mkfifo(typed)
    line = f'"$@" < {shlex.quote(str(typed))}; echo stopped; bg > /dev/null; read -r; echo back; fg > /dev/null'
    run = play(line)
    with typed.open("w") as keys:
        run.wait_for("part")
        run.type(b"\x1a")
        run.wait_for("stopped")
        assert termios.tcgetattr(run.master)[3] & termios.ECHO
        run.type(b"\n")
        run.wait_for("back")
        run.wait_for("part")
        assert not termios.tcgetattr(run.master)[3] & termios.ECHO
        keys.write("end\n")
    assert run.finish() == 0
    assert run.lines()[-1] == "ended"


def test_a_terminal_that_is_held_does_not_keep_them_from_their_end() -> None:
    """Held by Ctrl-S, the terminal takes nothing, and the thread that draws waits for it."""
    run = terminal(under=(sys.executable, "-c", PROGRAM), columns=100, rows=24)
    before = termios.tcgetattr(run.master)
    run.wait_for("part")
    run.hold()
    run.child.send_signal(signal.SIGTERM)
    assert run.child.wait(TIMEOUT) == 143
    assert termios.tcgetattr(run.master) == before
    os.close(run.master)


def test_begun_in_the_background_there_are_lines() -> None:
    run = play('"$@" < <(printf "\\nend\\n") & wait')
    assert run.finish() == 0
    assert run.lines()[:2] == ["noted", "ended"]
    assert b"\x1b" not in run.raw


def test_ctrl_backslash_shows_the_cursor_again() -> None:
    run = play('exec "$@"')
    run.wait_for("part")
    run.type(b"\x1c")
    assert run.finish() == -signal.SIGQUIT
    assert CURSOR_ON.encode() in run.raw
    assert not run.screen.cursor.hidden
