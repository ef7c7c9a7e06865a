"""Leaving a thread, or the process, while it is in the middle of something that cannot be stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from typing import Any

import pytest

from localdiff.machine.abandonable import AbandonableThread, TooSlowError, each, leave, limited
from tests.screens.processes import ROOT, TIMEOUT, environment

PROGRAM = """
import atexit, sys, threading, time
from localdiff.machine.abandonable import AbandonableThread, leave
atexit.register(print, "put in order")
started = threading.Event()
def hang():
    started.set()
    time.sleep(600)
AbandonableThread(hang).start()
started.wait()
leave(3)
"""


def test_a_thread_that_hangs_keeps_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "put in order\n", "")


def test_without_such_a_thread_it_is_an_exit_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.enumerate", list)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process goes on
    with pytest.raises(SystemExit) as caught:
        leave(5)
    assert caught.value.code == 5


WITH_TORCH = """
import atexit, sys, threading, time, types
from localdiff.machine.abandonable import leave
class Taken:
    def __del__(self):
        print("taken apart")
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].part = Taken()
atexit.register(print, "put in order")
def work():
    time.sleep(600 if DAEMON else 0.5)
    print("worked")
threading.Thread(target=work, daemon=DAEMON).start()
print("done", end="; ")
leave(4)
"""


@pytest.mark.parametrize(
    ("daemon", "expected"),
    [(True, "done; put in order\n"), (False, "done; worked\nput in order\ntaken apart\n")],
    ids=["nothing to wait for", "a thread at work"],
)
def test_torch_is_not_taken_apart_unless_somebody_is_waited_for(daemon: bool, expected: str) -> None:
    program = WITH_TORCH.replace("DAEMON", str(daemon))
    done = subprocess.run([sys.executable, "-c", program], env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (4, expected, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there a process does not end by a signal")
def test_a_ctrl_c_while_it_leaves_prints_no_traceback() -> None:
    program = """
import atexit, signal
from localdiff.machine.abandonable import leave
atexit.register(signal.raise_signal, signal.SIGINT)  # as torch's own callbacks take their time
leave(130)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_results_come_in_the_order_of_items_whichever_is_ready_first() -> None:
    ready = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert ready.wait(60)
        elif item == 3:
            ready.set()
        return item * item

    assert each(work, range(4), threads=2) == (0, 1, 4, 9)
    assert each(work, (), threads=2) == ()


def test_of_two_errors_the_first_in_order_is_raised_and_what_is_left_is_not_begun() -> None:
    begun: list[int] = []
    second = threading.Event()

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            assert second.wait(60)
            raise ValueError("first")
        if item == 1:
            second.set()
            raise ValueError("second")
        time.sleep(0.5)

    with pytest.raises(ValueError, match="first"):
        each(work, range(50), threads=2)
    time.sleep(1.5)
    assert len(begun) < 10


@pytest.mark.skipif(sys.platform == "win32", reason="there a process does not end by a signal")
def test_a_ctrl_c_waits_for_no_thread() -> None:
    hang, hangs = threading.Event(), threading.Event()

    def work(_item: int) -> None:
        hangs.set()
        hang.wait(120)

    def press() -> None:
        hangs.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=press).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            each(work, range(4), threads=2)
        assert any(isinstance(thread, AbandonableThread) for thread in threading.enumerate())
    finally:
        signal.signal(signal.SIGINT, before)
        hang.set()


def test_work_within_its_limit() -> None:
    assert limited(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 // 0, 10)


def test_work_that_gets_further_may_take_longer() -> None:
    reached, hang = 0, threading.Event()

    def steps() -> str:
        nonlocal reached
        for _ in range(4):
            hang.wait(0.4)
            reached += 1
        return "done"

    def hanging() -> None:
        nonlocal reached
        reached += 1
        hang.wait(60)

    assert limited(steps, 1, progress=lambda: reached) == "done"
    with pytest.raises(TooSlowError):
        limited(hanging, 0.2, progress=lambda: reached)
    hang.set()


def test_work_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is split into short stretches, between which Ctrl-C works even on Windows."""
    stretches: list[float] = []
    released = threading.Event()

    def watched(futures: Any, timeout: float) -> Any:
        stretches.append(timeout)
        return wait(futures, timeout)

    monkeypatch.setattr("localdiff.machine.abandonable.wait", watched)
    began = time.monotonic()
    with pytest.raises(TooSlowError):
        limited(lambda: released.wait(60), 0.25)
    assert 0.25 <= time.monotonic() - began < 30
    assert max(stretches) <= 0.1
    released.set()
