"""A clock that a test moves."""

from __future__ import annotations


class FakeClock:
    """Stands still until it is moved; called, it gives seconds, as `time.monotonic` and `time.perf_counter` do."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
