"""Environment variables that choose a way to compute: what they say wrong is the user's to mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quant.switch import SwitchError

from .errors import UsageError


@contextmanager
def reading_switches() -> Iterator[None]:
    """Turns a `SwitchError` of `quant` into the error that this package promises.

    Raises:
        UsageError: an environment variable says what it cannot say.
    """
    try:
        yield
    except SwitchError as error:
        raise UsageError(str(error), error.hint) from error
