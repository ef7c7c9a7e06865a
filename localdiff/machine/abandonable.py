"""Threads that the process may leave behind: a dead disk hangs for minutes, and torch cannot be interrupted."""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import NoReturn, TypeVar

S = TypeVar("S")
T = TypeVar("T")

_POLL = 0.1
"""Seconds between polls of a future: on Windows, Ctrl-C does not interrupt a wait for a lock."""


class TooSlowError(Exception):
    """Something did not finish within its time limit."""


class AbandonableThread(threading.Thread):
    """A daemon thread; `leave` ends the process even while the thread is in native code."""

    def __init__(self, target: Callable[[], None]) -> None:
        super().__init__(target=target, daemon=True)


def each(work: Callable[[S], T], items: Iterable[S], *, threads: int) -> tuple[T, ...]:
    """The results of `work` for every item, in order, computed a few at a time.

    Ending early, by Ctrl-C for example, waits for no thread, unlike `ThreadPoolExecutor` and the interpreter's exit
    after it: items being worked on are abandoned, and items not yet begun are dropped.

    Raises:
        Exception: what `work` raised, for the first item where it raised.
    """
    waiting = deque((item, Future[T]()) for item in items)
    futures = [future for _, future in waiting]

    def run() -> None:
        with suppress(IndexError):
            while True:
                item, future = waiting.popleft()
                _fulfil(future, partial(work, item))

    for _ in range(min(threads, len(futures))):
        AbandonableThread(run).start()
    try:
        return tuple(_awaited(future) for future in futures)
    finally:
        waiting.clear()


def limited(work: Callable[[], T], seconds: float, *, progress: Callable[[], object] = lambda: None) -> T:
    """The result of `work`, on a thread that is left behind if it takes too long.

    Args:
        progress: its value changes when `work` has got further, which restarts the time limit.

    Raises:
        TooSlowError: `work` took longer than `seconds` without getting further.
        Exception: what `work` raised.
    """
    future = Future[T]()
    AbandonableThread(partial(_fulfil, future, work)).start()
    reached = progress()
    while True:
        try:
            return _awaited(future, seconds)
        except TooSlowError:
            before, reached = reached, progress()
            if reached == before:
                raise


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # whatever it is, the waiting thread must get it
        future.set_exception(error)


def _awaited(future: Future[T], seconds: float = math.inf) -> T:
    end = time.monotonic() + seconds
    while not wait([future], min(_POLL, end - time.monotonic())).done:
        if time.monotonic() >= end:
            raise TooSlowError
    return future.result()


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code, once everything is flushed.

    The interpreter is not finalized while an abandoned thread runs, whose native code would abort the process. With
    torch loaded it is not finalized either, unless a non-daemon thread still runs: tearing down torch's modules can
    delay the shell's prompt by a second. From here on, Ctrl-C ends the process silently: nothing is left to stop in
    good order.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    is_abandoned = any(isinstance(thread, AbandonableThread) for thread in others)
    if is_abandoned or ("torch" in sys.modules and all(thread.daemon for thread in others)):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)
