"""A clock that a test moves."""

from __future__ import annotations


class FakeClock:
    """Stands still until a test moves it; a call returns seconds, as `time.monotonic` and `time.perf_counter` do."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
