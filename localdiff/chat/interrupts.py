"""Ctrl-C in a chat: one handler from the first line to the last.

Knows the signal and who listens to it; knows nothing about what is stopped. A press while nobody listens is remembered
for whoever listens next, so that it cuts nothing short: no turn that is being saved, no prompt that is being set up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NoReturn, TypeAlias

from localdiff.ui.interrupt import canceller, handled_by

Listener: TypeAlias = Callable[[], None]


class LeaveAtOnce(KeyboardInterrupt):
    """The user does not wait: Ctrl-C again before a reply has stopped, or where lines do not come from a keyboard."""


class Interrupts:
    """The presses of Ctrl-C during one chat.

    Args:
        clock: seconds, for telling a second press from a new first one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listener: Listener | None = None
        self._is_waiting = False

    def handled(self, *, typed: bool = True) -> AbstractContextManager[None]:
        """Inside it Ctrl-C is a press, and raises nothing by itself; off the main thread it does nothing.

        Where lines are not typed and Ctrl-C is ignored, as behind `&` in a script of the shell, it stays so.
        """
        if not typed and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            return nullcontext()
        return handled_by(lambda _signal, _frame: self.press())

    def press(self) -> None:
        """Tell who listens, or remember it."""
        if self._listener is None:
            self._is_waiting = True
        else:
            self._listener()

    def listen(self, listener: Listener | None) -> None:
        """Tell this one from now on, also of a press that was remembered; None listens to nothing."""
        self._listener = listener
        if listener is not None and self._is_waiting:
            self._is_waiting = False
            listener()

    def stopping(self, cancel: threading.Event) -> AbstractContextManager[None]:
        """Inside it a press sets `cancel`; a second one within two seconds raises `LeaveAtOnce`."""
        press = canceller(cancel, self._clock)

        def stop() -> None:
            try:
                press()
            except KeyboardInterrupt:
                self._listener = None  # whatever is kept on the way out is kept whole
                raise LeaveAtOnce from None

        return self._heard_by(stop)

    def aborting(self) -> AbstractContextManager[None]:
        """Inside it a press raises `KeyboardInterrupt`."""
        return self._heard_by(_abort)

    def leaving(self) -> AbstractContextManager[None]:
        """Inside it a press raises `LeaveAtOnce`."""
        return self._heard_by(_leave)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside it a press is remembered, until the end."""
        before, self._listener = self._listener, None
        try:
            yield
        finally:
            self.listen(before)

    @contextmanager
    def _heard_by(self, listener: Listener) -> Iterator[None]:
        try:
            self.listen(listener)
            yield
        finally:
            self._listener = None


def _abort() -> NoReturn:
    raise KeyboardInterrupt


def _leave() -> NoReturn:
    raise LeaveAtOnce
