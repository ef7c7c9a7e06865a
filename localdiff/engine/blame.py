"""Who may be at fault where a model's results are no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.errors import WeightsError


@contextmanager
def adapter_may_be_at_fault(adapter: str | None) -> Iterator[None]:
    """Has the hint of an error of weights name the adapter, if there is one."""
    try:
        yield
    except WeightsError as error:
        if adapter is not None:
            error.hint = f"the adapter `{adapter}` makes values too large, or {error.hint}"
        raise
