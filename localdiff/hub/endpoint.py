"""The Hub's address, as `HF_ENDPOINT` may name it.

Knows what an address is; asks nothing.
"""

from __future__ import annotations

from urllib.parse import urlsplit

ADDRESS = "it begins with `https://` or `http://`; without it the Hub itself is asked"
"""The hint for an endpoint that is no address."""


def is_address(endpoint: str) -> bool:
    """Whether an endpoint can be asked at all: it has a scheme of the web, and a host."""
    parts = urlsplit(endpoint)
    return parts.scheme in ("http", "https") and bool(parts.hostname)
