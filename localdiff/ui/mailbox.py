"""Mailbox from the engine's thread to the drawing thread: the latest frame wins, except for frames that must be kept.

Knows order and waiting; knows nothing about frames. The engine never waits here: putting something in takes
a lock that is only ever held for the time of a list operation, and wakes only a thread that waits for it.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A slot that is overwritten, and a queue for what must be kept."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: list[T] = []
        self._latest: list[T] = []
        self._closed = threading.Event()

    def put(self, item: T, *, keep: bool = False) -> None:
        """Leave `item`; it replaces an item that was put without `keep` and has not been taken."""
        with self._changed:
            self._latest.clear()
            (self._kept if keep else self._latest).append(item)
            self._changed.notify()

    def take(self, timeout: float) -> list[T]:
        """Wait until there are items, the box is closed or `timeout` seconds are over; oldest first."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._kept or self._latest, timeout)
            items = self._kept + self._latest
            self._kept, self._latest = [], []
            return items

    def pause(self, seconds: float) -> None:
        """Wait `seconds`, or until the box is closed."""
        # Not on the condition: every `put` would wake the thread for nothing, and cost the putting thread time.
        self._closed.wait(seconds)

    def close(self) -> None:
        """Wake all waiters; from now on nothing waits."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether `close` was called; there may still be items."""
        return self._closed.is_set()
