"""Ctrl-C while a model is loaded, and during a generation: first it stops the reply, then the process; and Ctrl-\\.

Knows signals; knows nothing about what is being stopped.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType
from typing import TypeAlias

IMPATIENCE = 2.0
"""Seconds within which a second Ctrl-C no longer waits for the run to stop."""

_ABORT = {"torch.autograd", "torch.distributed", "torch.distributed.autograd", "torch.multiprocessing"}
"""Modules that call C++ to set up a part of torch while they are imported; it aborts the process, or crashes, if a
handler raises an exception in that module or in what it calls, such as Python's own imports."""
_SOON = 0.05
"""Seconds after which a signal that arrived there is tried again."""

Handler: TypeAlias = Callable[[int, FrameType | None], None]


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises at its end what Ctrl-C, `kill` or a hangup raised in it, even if that was lost or became another error.

    Ctrl-C raises `KeyboardInterrupt` even if outside it only sets a flag, which nobody reads while a model is loaded.
    C libraries drop Python exceptions that they did not expect, as torch does while it imports NumPy, or raise their
    own instead, as torch does while it reads a tensor; Python drops and prints those raised in callbacks. Off the
    main thread it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []
    try:
        with _noted(raised), _unprinted(raised):
            yield
    except Exception as error:
        if raised:
            raise raised[0] from error
        raise
    if raised:
        raise raised[0]


@contextmanager
def _noted(raised: list[BaseException]) -> Iterator[None]:
    """In this context, Ctrl-C raises `KeyboardInterrupt`, and what signal handlers raise is also kept."""
    changed: list[tuple[int, Handler, Handler]] = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None and callable(before := signal.getsignal(number)):
            raising = signal.default_int_handler if number == signal.SIGINT else before
            changed.append((number, before, noting := _noting(raising, raised)))
            signal.signal(number, noting)
    try:
        yield
    finally:
        for number, before, noting in changed:
            if signal.getsignal(number) is noting:  # otherwise a handler has changed it, as a one-time handler does
                signal.signal(number, before)


def _noting(handler: Handler, raised: list[BaseException]) -> Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        frames = () if frame is None else walk_stack(frame)
        if any(each.f_globals.get("__name__") in _ABORT for each, _ in frames):
            again = threading.Timer(_SOON, _send, [number])
            again.daemon = True
            again.start()
            return
        try:
            handler(number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    return handle


def _send(number: int) -> None:
    """Sends a signal to the main thread, which may be blocked in a system call."""
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def _unprinted(errors: list[BaseException]) -> Iterator[None]:
    """In this context, Python prints nothing about those of these exceptions that it drops."""
    before = sys.unraisablehook

    def report(dropped: sys.UnraisableHookArgs) -> None:
        if not any(dropped.exc_value is error for error in errors):
            before(dropped)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def cancel_on_interrupt(cancel: threading.Event, *, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Let Ctrl-C set `cancel` instead of raising; twice within two seconds still raises `KeyboardInterrupt`.

    Does nothing off the main thread, where no handler may be installed, nor where Ctrl-C is ignored, as in what a
    shell script has started with `&`: there Ctrl-C is meant for other commands.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    press = canceller(cancel, clock)
    with handled_by(lambda _signal, _frame: press()):
        yield


def canceller(cancel: threading.Event, clock: Callable[[], float]) -> Callable[[], None]:
    """What Ctrl-C does during a run: it sets `cancel`, and a second one soon after raises `KeyboardInterrupt`."""
    last: float | None = None

    def press() -> None:
        nonlocal last
        now = clock()
        if last is not None and now - last < IMPATIENCE:
            raise KeyboardInterrupt
        last = now
        cancel.set()

    return press


@contextmanager
def quit_as_terminated() -> Iterator[None]:
    """In this context, Ctrl-\\ does what `kill` does, if the program handles that: nothing finished is lost.

    This still holds while the program ends because of it: a held key repeats, and must not cut the ending short. Does
    nothing off the main thread, or where Ctrl-\\ is ignored.
    """
    terminate = signal.getsignal(signal.SIGTERM)
    if (
        sys.platform == "win32"
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGQUIT) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGQUIT, terminate)
    ends = False
    try:
        yield
    except SystemExit:
        ends = True
        raise
    finally:
        if not ends:
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Installs a handler of Ctrl-C in this context; does nothing off the main thread, where none may be installed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
