"""Reachability of the Hub: whether it answers, whether it accepts the token, and how downloads would work.

Knows one request and its time limit; downloads nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal

from localdiff.hub.endpoint import is_address, prepare_client, shown
from localdiff.hub.large_file import xet_remedy
from localdiff.hub.listing import model_info
from localdiff.hub.problems import ConnectionBarredError, UnreachableError, explain, refused_by_mirror, unreadable_token

TIMEOUT = 3.0
"""Seconds for a connection, and for the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The result of asking the Hub.

    Attributes:
        endpoint: the URL that was asked, without a password.
        state: `reachable`, `unreachable`, `refused` (it rejects the token), `broken` (it answers with an error),
            `offline` (it may not be asked), `misnamed` (the endpoint is not an address, and nothing was asked),
            `unread` (the token cannot be read or sent, and nothing was asked), or `barred` (a proxy or a certificate of
            this machine is in the way).
        problem: the error in words.
        advice: what to do about it.
        seconds: how long the answer took.
        has_token: whether there is a token; never the token itself.
        xet_remedy: what to do so that the faster protocol is used; None if it is.
    """

    endpoint: str
    state: Literal["reachable", "unreachable", "refused", "broken", "offline", "misnamed", "unread", "barred"]
    problem: str | None = None
    advice: str | None = None
    seconds: float | None = None
    has_token: bool = False
    xet_remedy: str | None = None


def reach(model: str) -> Reach:
    """Ask the Hub about a model.

    Args:
        model: `owner/name`; the Hub is also fine if it knows no such model.

    Raises:
        UsageError: `HF_ENDPOINT` or another variable keeps `huggingface_hub` from being imported or used.
    """
    prepare_client()
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    result = Reach(endpoint=shown(constants.ENDPOINT), state="reachable", xet_remedy=xet_remedy())
    if (unread := unreadable_token()) is not None:
        return replace(result, state="unread", problem=unread.message, advice=unread.hint, has_token=True)
    result = replace(result, has_token=get_token() is not None)
    if constants.is_offline_mode():
        return replace(result, state="offline")
    if not is_address(constants.ENDPOINT):
        return replace(result, state="misnamed")
    began = time.perf_counter()
    try:
        model_info(model, timeout=TIMEOUT)
    except UnreachableError as error:
        result = replace(result, state="broken", problem=error.message, advice=error.hint)
    except (GatedRepoError, RepositoryNotFoundError) as error:
        if refused_by_mirror(error, model) is not None:  # else it is an answer about the model, not about the Hub
            result = _explained(result, error, model)
    except Exception as error:
        result = _explained(result, error, model)
    return replace(result, seconds=time.perf_counter() - began)


def _explained(result: Reach, error: Exception, model: str) -> Reach:
    """The result, with the error that asking ended in; one that the Hub did not cause is raised again."""
    from huggingface_hub.errors import HfHubHTTPError

    explained = explain(error, model, None)
    if explained is None:
        raise error
    if isinstance(explained, ConnectionBarredError):
        return replace(result, state="barred", problem=explained.message, advice=explained.hint)
    if isinstance(explained, UnreachableError):
        return replace(result, state="unreachable", problem=explained.message, advice=explained.hint)
    if not isinstance(error, HfHubHTTPError):  # the advice is for a download that broke off
        return replace(result, state="broken", problem=explained.message)
    refused = result.has_token and error.response.status_code in (401, 403)
    return replace(result, state="refused" if refused else "broken", problem=explained.message, advice=explained.hint)
