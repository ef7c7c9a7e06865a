"""Reachability of the Hub: whether it answers, whether it accepts the token, and how downloads would work.

Knows one request and its time limit; downloads nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

TIMEOUT = 3.0
PUBLIC_ENDPOINT = "https://huggingface.co"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The result of asking the Hub.

    Attributes:
        endpoint: the URL that was asked.
        state: `reachable`, `unreachable`, `refused` (it rejects the token), `broken` (it answers with an error),
            `offline` (it may not be asked), `misnamed` (the endpoint is no address, and nobody was asked), or
            `unread` (the stored token cannot be read, and nobody was asked).
        problem: the error in words.
        advice: what to do about it.
        seconds: how long the answer took.
        has_token: whether there is a token; never the token itself.
        has_xet: whether the faster protocol can be used.
    """

    endpoint: str
    state: Literal["reachable", "unreachable", "refused", "broken", "offline", "misnamed", "unread"]
    problem: str | None = None
    advice: str | None = None
    seconds: float | None = None
    has_token: bool = False
    has_xet: bool = False


def reach(model: str, *, timeout: float = TIMEOUT) -> Reach:
    """Ask the Hub about a model.

    Args:
        model: `owner/name`; the Hub is also fine if it knows no such model.
        timeout: seconds for a connection, and for the answer.

    Raises:
        UsageError: `HF_ENDPOINT` is so far from an address that `huggingface_hub` cannot be imported.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from localdiff.hub.endpoint import is_address, require_readable

    require_readable()
    from huggingface_hub import HfApi, constants, get_token
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    from localdiff.hub.problems import UnreachableError, explain, unreadable_token

    endpoint, has_xet = constants.ENDPOINT, find_spec("hf_xet") is not None
    if (unread := unreadable_token()) is not None:
        return Reach(
            endpoint=endpoint,
            state="unread",
            problem=unread.message,
            advice=unread.hint,
            has_token=True,
            has_xet=has_xet,
        )
    has_token = get_token() is not None
    if constants.is_offline_mode():
        return Reach(endpoint=endpoint, state="offline", has_token=has_token, has_xet=has_xet)
    if not is_address(endpoint):
        return Reach(endpoint=endpoint, state="misnamed", has_token=has_token, has_xet=has_xet)
    began = time.perf_counter()
    state: Literal["reachable", "unreachable", "refused", "broken"] = "reachable"
    problem = advice = None
    try:
        HfApi(library_name="localdiff").model_info(model, timeout=timeout)
    except (GatedRepoError, RepositoryNotFoundError):
        pass  # an answer about the model, not about the Hub
    except Exception as error:
        explained = explain(error, model, None)
        if explained is None:
            raise
        problem, advice = explained.message, explained.hint
        if isinstance(explained, UnreachableError):
            state = "unreachable"
        else:
            status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
            state = "refused" if status in (401, 403) else "broken"
            if status is None:
                advice = None  # it is for a download that broke off
    seconds = time.perf_counter() - began
    return Reach(
        endpoint=endpoint,
        state=state,
        problem=problem,
        advice=advice,
        seconds=seconds,
        has_token=has_token,
        has_xet=has_xet,
    )
