"""Rate of progress, and the time left where it can honestly be estimated.

Knows amounts and a clock; knows nothing about what is counted or how it is shown. One thread may read while another
counts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from localdiff.sizes import shown_part, shown_size, shown_time

WINDOW = 30.0
"""Seconds over which a rate is averaged."""
RECENT = 5.0
"""Seconds over which the recent rate is averaged."""
FIRST = 3.0
"""Seconds before which nothing is estimated."""
STEADY = 2.0
"""Factor by which the recent rate may differ from the mean rate before the estimate is withheld."""

_SPACING = 0.25


class Rate:
    """Watches one amount grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._points: deque[tuple[float, int]] = deque([(self._start, 0)])
        self._last = (self._start, 0)
        self._lock = threading.RLock()

    def see(self, done: int) -> None:
        """`done` is the amount so far; less than before means that some of it is done again."""
        with self._lock:
            now = self._clock()
            if done < self._last[1]:
                self._points = deque([(now, done)])
            elif now - self._points[-1][0] >= _SPACING:
                self._points.append((now, done))
            self._last = (now, done)

    def per_second(self, window: float = WINDOW) -> float | None:
        """Mean rate over the last `window` seconds, or None if it is not known yet."""
        with self._lock:
            now = self._clock()
            while len(self._points) > 1 and self._points[1][0] <= now - WINDOW:
                self._points.popleft()
            points = (self._last, *reversed(self._points))
            since = next((point for point in points if point[0] <= now - window), self._points[0])
            seconds = now - since[0]
            return (self._last[1] - since[1]) / seconds if seconds > _SPACING else None

    def seconds_left(self, total: int) -> float | None:
        """How long the rest will take, or None where that cannot be estimated: too early, stalled, or unsteady."""
        mean, recent = self.per_second(), self.per_second(RECENT)
        if self._clock() - self._start < FIRST or not mean or not recent:
            return None
        if not 1 / STEADY <= recent / mean <= STEADY:
            return None
        return max(0.0, total - self._last[1]) / mean


def shown_amount(done: int, total: int, rate: Rate) -> str:
    """`38.1/52.0 GB  86 MB/s  2m41s left`, as far as known."""
    parts = [shown_part(done, total)]
    if speed := rate.per_second():
        parts.append(f"{shown_size(speed)}/s")
    if (seconds := rate.seconds_left(total)) is not None and done < total:
        parts.append(f"{shown_time(seconds)} left")
    return "  ".join(parts)
