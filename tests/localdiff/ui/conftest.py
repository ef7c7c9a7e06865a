"""What tests of terminals share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def signals_have_no_handlers() -> Iterator[None]:
    """A script's `&` makes tests ignore some signals, and a test that is interrupted as it ends leaves its handlers."""
    names = ("SIGHUP", "SIGQUIT", "SIGTSTP", "SIGCONT")
    before = {
        number: signal.signal(number, signal.SIG_DFL)
        for name in names
        if (number := getattr(signal, name, None)) is not None
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
