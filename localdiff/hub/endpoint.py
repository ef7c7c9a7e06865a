"""The variables that the Hub's client reads when it is imported: its address, `HF_ENDPOINT`, and its time limits.

Knows what an address is; asks nothing.
"""

from __future__ import annotations

import os
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
    """Refuse variables that `huggingface_hub` cannot even be imported with, whatever it is asked for then.

    Raises:
        UsageError: the port of `HF_ENDPOINT` is no number of a port, or its brackets hold no address; or a time limit
            is no whole number.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "")
    if not is_readable(endpoint):
        raise no_address(endpoint)
    for name in _TIME_LIMITS:
        try:
            int(os.environ.get(name, "0"))
        except ValueError:
            raise UsageError(
                f"`{name}={os.environ[name]}` is not a whole number of seconds", "without it the Hub's client waits 10"
            ) from None


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
