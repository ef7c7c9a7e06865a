"""The signals by which a process loses its terminal, and gets it back.

Knows signals; knows nothing about what must be restored.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TypeAlias

from localdiff.ui.interrupt import Handler

Undrawn: TypeAlias = Callable[[], AbstractContextManager[None]]

_PATIENCE = 1.0


@contextmanager
def held(lock: threading.RLock) -> Iterator[None]:
    """In this context no other thread has the lock, unless one keeps it too long: a terminal may block output for long.

    If this thread already has the lock, since a signal interrupted it, the context begins at once.
    """
    is_held = lock.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        if is_held:
            lock.release()


class TerminalSignals:
    """Gives a terminal back before the process loses it, and takes it over again afterwards.

    Between `start` and `stop`: a hangup and Ctrl-\\ end the process as always, after `give_back`; Ctrl-Z stops it
    after `give_back`, and `take` is called once it continues. Signals that other code handles, or that are ignored,
    are left alone, and all signals off the main thread: in a command, `exits` lets a hangup unwind the stack.

    Args:
        give_back: restores the terminal; called from a signal handler.
        take: sets the terminal up again, even if it already is; called from a signal handler.
        more: handlers of other signals, for the same time.
        undrawn: a context in which no other thread draws; entered before `give_back`, and left after `take`.

    Attributes:
        is_ending: whether the terminal is given back for good.
    """

    def __init__(
        self,
        *,
        give_back: Callable[[], None],
        take: Callable[[], None],
        more: Mapping[int, Handler] | None = None,
        undrawn: Undrawn = nullcontext,
    ) -> None:
        self._give_back = give_back
        self._take = take
        self._more = more or {}
        self._undrawn = undrawn
        self._handled: list[int] = []
        self.is_ending = False

    def start(self) -> None:
        """Handle the signals."""
        self.is_ending = False
        if threading.current_thread() is not threading.main_thread():
            return
        handlers = dict(self._more)
        if sys.platform != "win32":
            handlers |= {
                signal.SIGHUP: self._on_fatal,
                signal.SIGQUIT: self._on_fatal,
                signal.SIGTSTP: self._on_suspend,
                signal.SIGCONT: self._on_continue,
            }
        for number, handler in handlers.items():
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, handler)
                self._handled.append(number)

    def end(self) -> None:
        """Call `take` no more: the terminal is given back for good, but `timeout` sends SIGCONT after its signal."""
        self.is_ending = True

    def stop(self) -> None:
        """Leave the signals to the system again."""
        while self._handled:
            signal.signal(self._handled.pop(), signal.SIG_DFL)

    def _on_fatal(self, number: int, _frame: FrameType | None) -> None:
        self.end()
        with self._undrawn():
            self._give_back()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _on_suspend(self, number: int, frame: FrameType | None) -> None:
        with self._undrawn():
            self._give_back()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            # Continued, perhaps without having stopped: the system stops no process that nobody could continue.
            self._on_continue(number, frame)

    def _on_continue(self, _number: int, _frame: FrameType | None) -> None:
        if sys.platform != "win32" and signal.SIGTSTP in self._handled:
            signal.signal(signal.SIGTSTP, self._on_suspend)
        if not self.is_ending:
            self._take()
