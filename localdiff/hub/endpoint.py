"""The Hub's client before its first request: the variables that it reads, and passwords that its log would show.

Knows the Hub's address, `HF_ENDPOINT`, and the client's time limits; sends no requests.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import Any
from urllib.parse import urlsplit

from localdiff import __version__
from localdiff.errors import UsageError, without_password

PUBLIC_ENDPOINT = "https://huggingface.co"
"""The Hub itself; any other endpoint is a mirror."""
ADDRESS = "it is `https://HOST` or `http://HOST:PORT`; without it the Hub itself is asked"
"""The hint for an endpoint that is not an address."""
US: dict[str, Any] = {"library_name": "localdiff", "library_version": __version__}
"""How functions of the client name this program to the Hub."""
_TIME_LIMITS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")


def is_address(endpoint: str) -> bool:
    """Whether an endpoint can be asked at all: it has a scheme of the web, a host, and, if any, a valid port."""
    if not is_readable(endpoint):
        return False
    parts = urlsplit(endpoint)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def prepare_client() -> None:
    """Import `huggingface_hub`, without telemetry, and keep the passwords of addresses out of its log.

    Raises:
        UsageError: a variable prevents the import, or would make the first request fail.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    _require_usable_variables()
    from huggingface_hub.utils import logging as client_logging

    for handler in client_logging.get_logger().handlers:
        handler.addFilter(_hide_password)


def _hide_password(record: logging.LogRecord) -> bool:
    """Takes passwords out of a line of the client's log, which with `HF_DEBUG` names the address of each request."""
    record.msg, record.args = without_password(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = without_password(logging.Formatter().formatException(record.exc_info))
    return True


def _require_usable_variables() -> None:
    """Refuse variables that prevent the import of `huggingface_hub`, or would make its first request fail.

    Raises:
        UsageError: `HF_ENDPOINT` has an impossible port or host, or a time limit is not a possible number of seconds.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "")
    if not is_readable(endpoint):
        raise no_address(endpoint)
    for name in _TIME_LIMITS:
        text = os.environ.get(name, "0")
        if not _is_time_limit(text):
            raise UsageError(
                f"`{name}={text}` is not a valid time limit",
                "it is a whole number of seconds; without it the Hub's client waits 10",
            )


def _is_time_limit(text: str) -> bool:
    try:
        return 0 <= int(text) <= threading.TIMEOUT_MAX
    except ValueError:
        return False


def no_address(endpoint: str) -> UsageError:
    """The error that an endpoint is not an address."""
    return UsageError(f"`HF_ENDPOINT={shown(endpoint)}` is not a valid address", ADDRESS)


def shown(endpoint: str) -> str:
    """An endpoint for messages, without the name and the password that a mirror may want; it may be no address."""
    return re.sub(r"^([^/@]*://)?.*@", r"\1****@", endpoint, flags=re.DOTALL)


def is_readable(endpoint: str) -> bool:
    """Whether an address can be parsed: its port is a number, and its host can be looked up."""
    try:
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018  (a property that checks)
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return endpoint.isprintable()  # urlsplit ignores line breaks
