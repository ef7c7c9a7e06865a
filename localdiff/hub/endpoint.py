"""The variables that the Hub's client reads when it is imported: its address, `HF_ENDPOINT`, and its time limits.

Knows what an address is; asks nothing.
"""

from __future__ import annotations

import os
import threading
from urllib.parse import urlsplit

from localdiff.errors import UsageError

ADDRESS = "it is `https://HOST` or `http://HOST:PORT`; without it the Hub itself is asked"
"""The hint for an endpoint that is no address."""
_TIME_LIMITS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")


def is_address(endpoint: str) -> bool:
    """Whether an endpoint can be asked at all: it has a scheme of the web, a host, and a port if any."""
    if not is_readable(endpoint):
        return False
    parts = urlsplit(endpoint)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def require_readable() -> None:
    """Refuse variables that `huggingface_hub` cannot be imported with, or that its first request fails for.

    Raises:
        UsageError: the port of `HF_ENDPOINT` is no number of a port, or its brackets hold no address; or a time limit
            is no number of seconds that can be waited.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "")
    if not is_readable(endpoint):
        raise no_address(endpoint)
    for name in _TIME_LIMITS:
        text = os.environ.get(name, "0")
        if not _is_time_limit(text):
            raise UsageError(
                f"`{name}={text}` is no time limit",
                "it is a whole number of seconds; without it the Hub's client waits 10",
            )


def _is_time_limit(text: str) -> bool:
    try:
        return 0 <= int(text) <= threading.TIMEOUT_MAX
    except ValueError:
        return False


def no_address(endpoint: str) -> UsageError:
    """The error that an endpoint is no address."""
    return UsageError(f"`HF_ENDPOINT={endpoint}` is no address", ADDRESS)


def is_readable(endpoint: str) -> bool:
    """Whether an address has parts at all: a port that is a number, and brackets that hold an address."""
    try:
        urlsplit(endpoint).port  # noqa: B018  (a property that checks)
    except ValueError:
        return False
    return True
