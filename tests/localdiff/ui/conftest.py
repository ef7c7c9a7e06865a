"""What tests of terminals share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def handlers_are_as_before() -> Iterator[None]:
    """What is interrupted as it ends leaves its handlers of signals, which the next test would meet."""
    names = ("SIGHUP", "SIGQUIT", "SIGTSTP", "SIGCONT")
    before = {number: signal.getsignal(number) for name in names if (number := getattr(signal, name, None)) is not None}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
