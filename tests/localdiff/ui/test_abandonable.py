"""Leaving a process while a thread is in the middle of something that cannot be stopped."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from localdiff.ui.abandonable import leave
from tests.screens.processes import ROOT, environment

PROGRAM = """
import atexit, sys, threading, time
from localdiff.ui.abandonable import AbandonableThread, leave
atexit.register(print, "put in order")
started = threading.Event()
def hang():
    started.set()
    time.sleep(60)
AbandonableThread(hang).start()
started.wait()
leave(3)
"""


def test_a_thread_that_hangs_keeps_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "put in order\n", "")


def test_without_such_a_thread_it_is_an_exit_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.enumerate", list)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process goes on
    with pytest.raises(SystemExit) as caught:
        leave(5)
    assert caught.value.code == 5


@pytest.mark.skipif(sys.platform == "win32", reason="there a process does not end by a signal")
def test_a_ctrl_c_while_it_leaves_prints_no_traceback() -> None:
    program = """
import atexit, signal
from localdiff.ui.abandonable import leave
atexit.register(signal.raise_signal, signal.SIGINT)  # as torch's own callbacks take their time
leave(130)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
