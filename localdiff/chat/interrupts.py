"""Ctrl-C in a chat: one handler from the first line to the last.

Knows the signal and who listens to it; knows nothing about what is stopped. A press while nobody listens is
remembered for the next listener, so that it cuts nothing short: neither a turn being saved nor a prompt being set up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NoReturn, TypeAlias

from localdiff.ui.interrupt import canceller, handled_by

Listener: TypeAlias = Callable[[], object]


class LeaveAtOnce(KeyboardInterrupt):
    """The user wants to leave now: a second Ctrl-C before a reply has stopped, or Ctrl-C where lines are not typed."""


class Interrupts:
    """The presses of Ctrl-C during one chat.

    Args:
        clock: seconds, to distinguish a second press from a new first one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listener: Listener | None = None
        self._is_waiting = False

    def handled(self, *, typed: bool = True) -> AbstractContextManager[None]:
        """In this context Ctrl-C is a press, and raises nothing by itself; off the main thread this does nothing.

        Where lines are not typed and Ctrl-C is ignored, as after `&` in a shell script, it stays ignored.
        """
        if not typed and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            return nullcontext()
        return handled_by(lambda _signal, _frame: self.press())

    def press(self) -> None:
        """Tell the listener, or remember the press if there is none."""
        if self._listener is None:
            self._is_waiting = True
        else:
            self._listener()

    def listen(self, listener: Listener | None) -> None:
        """Set the listener, which is also told of a remembered press; None removes the listener."""
        self._listener = listener
        if listener is not None and self._is_waiting:
            self._is_waiting = False
            listener()

    def stopping(self, cancel: threading.Event) -> AbstractContextManager[None]:
        """In this context a press sets `cancel`; a second press within two seconds raises `LeaveAtOnce`."""
        press = canceller(cancel, self._clock)

        def stop() -> None:
            try:
                press()
            except KeyboardInterrupt:
                self._listener = None  # so that nothing being saved on the way out is cut short
                raise LeaveAtOnce from None

        return self._heard_by(stop)

    def raising(self, kind: type[KeyboardInterrupt]) -> AbstractContextManager[None]:
        """In this context a press raises an exception of this kind."""

        def listener() -> NoReturn:
            raise kind

        return self._heard_by(listener)

    @contextmanager
    def held(self) -> Iterator[None]:
        """In this context a press is remembered until the context ends."""
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
