"""Time limits of checks.

Knows threads and clocks; knows nothing about what is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from localdiff.abandonable import AbandonableThread

T = TypeVar("T")


class TooSlowError(Exception):
    """Something did not finish within its time limit."""


def limited(work: Callable[[], T], seconds: float) -> T:
    """The result of `work`, on a thread that is abandoned if it takes too long: a dead disk hangs for minutes.

    Raises:
        TooSlowError: it took longer than `seconds`.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = AbandonableThread(run)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TooSlowError
    return results[0]
