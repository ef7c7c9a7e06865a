"""Environment variables that choose a code path: invalid values become errors for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quant.switch import SwitchError

from .errors import UsageError


@contextmanager
def reading_switches() -> Iterator[None]:
    """Turns a `SwitchError` of `quant` into a `UsageError`.

    Raises:
        UsageError: an environment variable has an invalid value.
    """
    try:
        yield
    except SwitchError as error:
        raise UsageError(str(error), error.hint) from error
