"""Job control: a real `localdiff` in the background of a shell, sent there and fetched back."""

from __future__ import annotations

import shutil
import termios
from pathlib import Path

import pytest

from localdiff.ui.region import CURSOR_OFF, SYNC_ON
from localdiff.ui.replay_screen import ALTERNATE_ON
from tests.fakes.canvas import SCRIPTS
from tests.screens.processes import Terminal, terminal, with_jobs

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")

TEXT = SCRIPTS["latin"]
RUN = ("run", "-m", "demo", "hi")


def play(line: str, **script: object) -> Terminal:
    """A made-up run as the command of a line for a shell with job control."""
    return terminal(*RUN, script={"canvas": "latin"} | script, under=with_jobs(line), columns=300, rows=40)


def has_whole_text(run: Terminal) -> bool:
    shown = "\n".join(run.lines())
    return TEXT.strip() in shown and "198 tokens" in shown


def test_in_the_background_the_screen_is_left_alone_and_the_text_comes_out() -> None:
    run = play('stty -echo; "$@" & wait; echo "left with $?"')
    assert run.finish() == 0
    assert b"\x1b" not in run.raw.replace(b"\x1b[2m", b"").replace(b"\x1b[0m", b""), "the footer is dim, and no more"
    assert has_whole_text(run)
    assert run.lines()[-1] == "left with 0"


def test_fetched_from_the_background_it_is_drawn() -> None:
    run = play('"$@" & read -r; fg > /dev/null', hold_at=4, rate=100)
    run.type(b"\n")
    run.wait_for("step  4/48")
    run.type(b"\x03")
    assert run.finish() == 130
    assert not run.screen.cursor.hidden
    assert run.lines()[-1] == "Stopped in block 1 at step 4; nothing was kept."


@pytest.mark.parametrize("key", [b"\x1a", b"\x03"], ids=["stopped", "interrupted"])
def test_what_is_typed_into_the_picture_is_no_command_of_the_shell(key: bytes) -> None:
    line = '"$@"; read -r -t 0.5 line; echo "the shell was given <$line>"; kill -9 %1 2> /dev/null; true'
    run = play(line, hold_at=4, rate=100)
    run.wait_for("step  4/48")
    run.type(b"touch one\ntouch two" + key)
    assert run.finish() == 0
    assert "the shell was given <>" in run.lines()


def test_sent_to_the_background_it_goes_on_without_the_screen(tmp_path: Path) -> None:
    pace = tmp_path / "pace"
    pace.touch()
    line = '"$@"; stty -a | grep -ow -- -*echo; echo stopped; bg > /dev/null; wait; echo "left with $?"'
    run = play(line, pace=str(pace))
    run.wait_for("settled")
    run.type(b"\x1a")
    run.wait_for("stopped")
    pace.write_bytes(bytes(1000))
    stopped = len(run.raw)
    assert not run.screen.cursor.hidden
    assert run.finish() == 0
    after = run.raw[run.raw.index(b"stopped") :]
    assert stopped and SYNC_ON.encode() not in after and CURSOR_OFF.encode() not in after
    assert has_whole_text(run)
    assert run.lines()[-1] == "left with 0"


def test_fetched_from_there_without_a_signal_it_takes_the_terminal_over_again() -> None:
    """As with `fg` of bash: a job that `bg` already runs gets no SIGCONT, and the shell has turned echo on."""
    run = play('"$@"; echo stopped; bg > /dev/null; read -r; echo back; fg > /dev/null', hold_at=4, rate=100)
    run.wait_for("step  4/48")
    run.type(b"\x1a")
    run.wait_for("stopped")
    assert termios.tcgetattr(run.master)[3] & termios.ECHO
    run.type(b"\n")
    run.wait_for("back")
    run.wait_for("step  4/48")
    assert not termios.tcgetattr(run.master)[3] & termios.ECHO
    run.type(b"\x03")
    assert run.finish() == 130


def test_a_replay_waits_in_the_background_until_it_is_fetched() -> None:
    wait = "wait 2> /dev/null"
    line = f'"$@" & {wait}; bg > /dev/null; {wait}; echo waited; fg > /dev/null; echo "left with $?"; fg > /dev/null'
    run = terminal("replay", "example", under=with_jobs(line), columns=120)
    run.wait_for("+- ")
    assert run.raw.index(b"waited") < run.raw.index(ALTERNATE_ON.encode())
    run.type(b"\x1a")
    run.wait_for_bytes(b"left with 148")
    run.wait_for_bytes(ALTERNATE_ON.encode(), times=2)
    run.wait_for("+- ")
    run.type(b"q")
    assert run.finish() == 0
    assert not run.screen.cursor.hidden


@pytest.mark.parametrize("words", [("replay", "example"), ("chat", "-m", "demo")], ids=["replay", "chat"])
def test_what_waits_in_the_background_can_be_ended(words: tuple[str, ...]) -> None:
    """By SIGTERM and the SIGCONT that shells and `timeout` send after it: its set-up for keys must not be undone."""
    until_it_is_over = "for _ in {1..300}; do kill -0 $! 2> /dev/null || break; sleep 0.1; done"
    line = f'"$@" & wait 2> /dev/null; kill %1; {until_it_is_over}; wait $!; echo "left with $?"; kill -9 $!'
    run = terminal(*words, script={"replies": []}, under=with_jobs(line))
    run.wait_for("left with")
    assert "left with 143" in run.lines()
    run.finish()
