"""Requests that are repeated while the Hub is busy or failing.

Knows statuses and waits; knows nothing about what is asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from localdiff.hub.problems import explain, has_expired

_log = logging.getLogger(__name__)

WAITS = (1.0, 3.0)
"""Seconds before each retry."""
FAILURES = frozenset({500, 502, 503, 504})
"""Statuses of a server whose failure may be temporary."""
_BUSY = frozenset({408, 429})

T = TypeVar("T")


def with_retries(
    call: Callable[[], T],
    reference: str,
    revision: str | None,
    *,
    waits: Sequence[float] = WAITS,
    statuses: frozenset[int] = FAILURES | _BUSY,
    place: Path | None = None,
) -> T:
    """Make a request, and repeat it if the Hub is busy or failing, or if the address of a file has expired.

    Each retry is logged; refusals become error messages, by `explain`.
    """
    from huggingface_hub.errors import HfHubHTTPError

    for wait in (*waits, None):
        try:
            return call()
        except Exception as error:
            status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
            if (status in statuses or has_expired(error)) and wait is not None:
                _log.warning("the Hub answered %d for `%s`; it is asked again in %.0f s", status, reference, wait)
                time.sleep(wait)
                continue
            explained = explain(error, reference, revision, place=place)
            if explained is None:
                raise
            raise explained from error
    raise AssertionError("the last attempt returns or raises")
