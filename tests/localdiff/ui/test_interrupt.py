"""Ctrl-C once stops the reply, twice in a hurry stops everything."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from types import FrameType

import pytest

from localdiff.ui.interrupt import IMPATIENCE, cancel_on_interrupt, interruptible, quit_as_terminated
from tests.fakes.clock import FakeClock
from tests.screens.processes import ROOT, TIMEOUT, environment


def test_the_first_sets_the_flag_and_a_quick_second_raises() -> None:
    cancel, clock = threading.Event(), FakeClock()
    with pytest.raises(KeyboardInterrupt), cancel_on_interrupt(cancel, clock=clock):
        signal.raise_signal(signal.SIGINT)
        assert cancel.is_set()
        clock.now += IMPATIENCE - 0.1
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one was lost")


def test_a_late_second_counts_as_a_first() -> None:
    cancel, clock = threading.Event(), FakeClock()
    with cancel_on_interrupt(cancel, clock=clock):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            clock.now += IMPATIENCE
    assert cancel.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such key")
def test_ctrl_backslash_may_be_repeated_while_the_program_ends() -> None:
    asked: list[int] = []

    def terminate(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1:
            raise SystemExit(143)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGQUIT)}
    try:
        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        with quit_as_terminated():
            pass
        assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
        with pytest.raises(SystemExit), quit_as_terminated():
            signal.raise_signal(signal.SIGQUIT)
        signal.raise_signal(signal.SIGQUIT)
        assert asked == [signal.SIGQUIT] * 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_where_it_is_ignored_it_stays_so() -> None:
    """As in a command that a shell script starts with `&`: Ctrl-C is for the one that the script waits for."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with cancel_on_interrupt(cancel := threading.Event()):
            signal.raise_signal(signal.SIGINT)
        assert not cancel.is_set() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with cancel_on_interrupt(threading.Event()):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_installs_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with cancel_on_interrupt(threading.Event()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == [before]


def test_an_interrupt_that_python_drops_is_neither_lost_nor_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when it comes while a callback of a weak reference runs; imports run many of those."""
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)

    def die() -> None:
        finalized = weakref.ref(token := _Token(), lambda _: signal.raise_signal(signal.SIGINT))
        del token
        assert finalized() is None

    with pytest.raises(KeyboardInterrupt), interruptible():
        die()
    assert not printed


class _Token:
    """An object at whose end a callback can run."""


def test_an_interrupt_that_a_library_drops_is_not_lost() -> None:
    """As when torch imports NumPy from C: the exception is gone, and the import goes on."""
    before = signal.getsignal(signal.SIGINT)
    went_on = False
    with pytest.raises(KeyboardInterrupt), interruptible():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        went_on = True
    assert went_on and signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_raises_where_outside_it_sets_a_flag() -> None:
    """As when the second model of a pair is loaded: nothing reads the flag until the model is there."""
    cancel = threading.Event()
    with pytest.raises(KeyboardInterrupt), cancel_on_interrupt(cancel), interruptible():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("loading went on")
    assert not cancel.is_set()


IMPORTING = f"""
import os, signal, sys, time
from localdiff.ui.interrupt import interruptible

callers, called_name, nth = [], sys.argv[1], int(sys.argv[2])

def press(frame, event, called):
    global nth
    if event == "c_call" and called.__name__ == called_name:
        callers.append(frame)
    elif event == "call" and frame.f_back in callers:
        nth -= 1
        if nth == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

sys.setprofile(press)
try:
    with interruptible():
        import torch
        time.sleep({TIMEOUT})
except KeyboardInterrupt:
    os._exit(130)
"""


@pytest.mark.parametrize(
    ("function", "nth"),
    [("_c10d_init", 1), ("_dist_autograd_init", 1), ("_multiprocessing_init", 1), ("_autograd_init", 4)],
)
def test_an_interrupt_while_torch_is_imported_does_not_abort_the_process(function: str, nth: int) -> None:
    """It used to, in Python's import system, which these functions of torch in C++ call: without a message, and with
    the terminal's echo left off.
    """
    command = [sys.executable, "-c", IMPORTING, function, str(nth)]
    done = subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT)
    assert (done.returncode, done.stderr.decode()) == (130, "")


@pytest.mark.parametrize("name", ["torch.autograd", "torch.distributed", "torch.multiprocessing"])
def test_an_interrupt_in_what_such_a_module_calls_waits_until_that_is_over(name: str) -> None:
    """Torch's C++ code imports modules there, so the innermost frames may be those of Python's import system."""
    went_on: list[bool] = []

    def called_from_c() -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(True)

    with pytest.raises(KeyboardInterrupt), interruptible():
        exec("called_from_c()", {"__name__": name, "called_from_c": called_from_c})
        time.sleep(TIMEOUT)
    assert went_on


@pytest.mark.skipif(sys.platform == "win32", reason="there are no hangups")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_an_end_that_a_library_drops_is_not_lost(name: str) -> None:
    """With a handler like that of a command for `kill` and for a hangup, the latter only once."""
    number: int = getattr(signal, name)

    def end(_number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(143)

    before = signal.signal(number, end)
    try:
        with pytest.raises(SystemExit, match="143"), interruptible(), suppress(SystemExit):
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_an_interrupt_that_a_library_turns_into_another_error_is_one() -> None:
    """As when torch makes a tensor of a storage that safetensors has mapped."""
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("could not determine the shape of object type") from None


def test_without_an_interrupt_loading_ends_as_ever() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        pass
    with pytest.raises(ValueError, match="broken"), interruptible():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is before
    thread = threading.Thread(target=interruptible().__enter__)
    thread.start()
    thread.join()
