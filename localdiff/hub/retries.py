"""Requests that are repeated while the Hub is busy or failing, and downloads while the connection is down.

Knows statuses and waits; knows nothing about what is asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from localdiff.hub.problems import explain, has_expired, is_outage

_log = logging.getLogger(__name__)

WAITS = (1.0, 3.0)
"""Seconds before each retry."""
OUTAGE_WAITS = (1.0, 5.0, 10.0, 20.0, 40.0, 80.0)
"""Seconds before each retry after the connection broke; they start over once more of the file has arrived."""
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


def wait_out_outages(download: Callable[[], T], name: str, furthest: Callable[[], int]) -> T:
    """Fetch a file, and try again when the connection breaks; the client would give up within seconds, or at once.

    Args:
        download: fetches the file; continues where it was, or begins anew.
        name: its name, for the log.
        furthest: how many bytes of it have been here so far.
    """
    waits = iter(OUTAGE_WAITS)
    while True:
        had = furthest()
        try:
            return download()
        except Exception as error:
            if furthest() > had:
                waits = iter(OUTAGE_WAITS)
            if not is_outage(error) or (wait := next(waits, None)) is None:
                raise
        _log.warning("the connection broke off: `%s` goes on in %.0f s", name, wait)
        time.sleep(wait)
