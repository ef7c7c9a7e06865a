"""Error messages for what the Hub's client raises.

Knows the errors of the Hub's client, most specific first; knows nothing about what the files are for.
"""

from __future__ import annotations

import errno
import os
import re
import ssl
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from localdiff.checkpoints.model_reference import KINDS
from localdiff.errors import LocaldiffError, ResourceError, WeightsError, one_line
from localdiff.hub.endpoint import PUBLIC_ENDPOINT, is_address, is_readable, no_address, shown

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_CAN_GO_ON = "run the same command again to continue; finished files are kept; `--offline` uses only what is here"
_CONNECTION = "check the connection, and behind a proxy `HTTPS_PROXY`; then " + _CAN_GO_ON
_PROXY = "a proxy is `http://HOST:PORT`, or `socks5://HOST:PORT` with the package `socksio`"
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (.*?)(?: \(_ssl|$)")


class UnreachableError(WeightsError):
    """What is requested is not on this machine, and the Hub does not answer or may not be asked."""


class ConnectionBarredError(UnreachableError):
    """A proxy or certificate that is configured on this machine keeps the Hub's client from asking anything."""


def explain(
    error: Exception, reference: str, revision: str | None, *, place: Path | None = None
) -> LocaldiffError | None:
    """Turn an exception into an error message, most specific first.

    Args:
        error: what the Hub's client raised.
        reference: id of the repository.
        revision: branch, tag or commit that was asked for.
        place: where downloads go; the Hub's cache by default.

    Returns:
        The error in the form that all errors have; None for what the Hub did not cause.
    """
    from huggingface_hub import constants, errors

    # If the token's folder is not a directory, neither is that of the downloads, which is reported below.
    if not isinstance(error, NotADirectoryError) and (unread := unreadable_token()) is not None:
        return unread
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:
            return _no_room(cause, reference, place)
        if (refusal := _explain_refusal(cause, reference, revision)) is not None:
            return refusal
    if constants.is_offline_mode() and isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
        return not_downloaded(reference)
    for cause in _causes(error):
        if _is_of_the_network(cause):
            return _explain_network(cause, reference)
    if (barred := _bad_proxy() or _bad_certificates()) is not None:
        return barred
    if not isinstance(error, OSError):
        return None
    if error.errno is None:  # the client's own: a file has the wrong size
        reason = one_line(error).partition(". ")[0]
        return WeightsError(f"`{reference}` could not be fetched: {reason}", _CAN_GO_ON)
    return WeightsError(
        f"`{reference}` could not be fetched: {one_line(error)}",
        f"downloads go to `{place or constants.HF_HUB_CACHE}`" + ("" if place else "; `HF_HOME` moves them"),
    )


def _explain_refusal(error: BaseException, reference: str, revision: str | None) -> WeightsError | None:
    """The error that the Hub, or before that its client, refuses what is requested; None for any other."""
    from huggingface_hub import constants, errors

    page = f"{shown(constants.ENDPOINT)}/{reference}"
    if isinstance(error, errors.GatedRepoError):
        return WeightsError(
            f"access to `{reference}` is not granted for this account",
            f"accept the terms at {page}, then run `hf auth login`",
        )
    if isinstance(error, errors.HfHubHTTPError) and (refusal := refused_by_mirror(error, reference)) is not None:
        return refusal
    if isinstance(error, errors.RepositoryNotFoundError):
        return WeightsError(
            f"there is no `{reference}` on the Hub, or it is private",
            "check the spelling; for a private model run `hf auth login` first",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return WeightsError(f"`{reference}` has no revision `{revision}`", f"its revisions are at {page}")
    if isinstance(error, errors.HFValidationError):
        return WeightsError(f"`{reference}` cannot be a Hub id", KINDS)
    if isinstance(error, errors.HfHubHTTPError):
        return _explain_status(error.response.status_code, reference, host=error.response.url.host)
    return None


def unreadable_token() -> WeightsError | None:
    """The error that the stored token cannot be read, or that the token cannot be sent; None if there is neither."""
    from huggingface_hub import constants, get_token

    try:
        token = get_token()
    except (OSError, ValueError) as error:
        reason = "it is not text" if isinstance(error, ValueError) else error.strerror
        return WeightsError(
            f"the token in `{constants.HF_TOKEN_PATH}` cannot be read: {reason}",
            "make it readable or move it away; `HF_TOKEN` takes its place",
        )
    if token is None or token.isascii():
        return None
    place = "HF_TOKEN" if os.environ.get("HF_TOKEN") else constants.HF_TOKEN_PATH
    return WeightsError(
        f"the token in `{place}` cannot be sent: it is not ASCII", "copy it again, without quotation marks around it"
    )


def not_downloaded(reference: str) -> UnreachableError:
    """The error that nothing of a repository is here, and the Hub may not be asked."""
    return UnreachableError(
        f"`{reference}` has not been downloaded, and the Hub may not be asked",
        "leave out `--offline` and unset `HF_HUB_OFFLINE` to download it",
    )


def deleted(name: str) -> str:
    """The hint for a download that is not the published file, and is no longer here."""
    return f"`{name}` was downloaded damaged and was deleted: run the same command again"


def another_commit(reference: str) -> WeightsError:
    """The error that another commit is delivered than the one requested."""
    from huggingface_hub import constants

    return WeightsError(
        f"what answers at {shown(constants.ENDPOINT)} hands out another commit of `{reference}` than the one it "
        "is asked for",
        "`HF_ENDPOINT` names the mirror; without it the Hub itself is asked",
    )


def changed_meanwhile(reference: str) -> WeightsError:
    """The error that the repository's branch has moved to another commit."""
    return WeightsError(
        f"`{reference}` was changed on the Hub while it was downloaded",
        "run the same command again: what has not changed is not downloaded again",
    )


def not_the_hub() -> UnreachableError:
    """The error that something else answers in the Hub's place."""
    from huggingface_hub import constants

    return UnreachableError(
        f"what answers at {shown(constants.ENDPOINT)} is not the Hub",
        "a network may want a login first: open that address in a browser; `HF_ENDPOINT` names another one",
    )


def _no_room(error: OSError, reference: str, place: Path | None) -> ResourceError:
    """The error that the disk is full, or that a limit on files or users is reached, whatever the disk has free."""
    from huggingface_hub import constants

    full = error.errno == errno.ENOSPC
    reason = "the disk is full" if full else (error.strerror or "no room").lower()
    hint = ("free some space" if full else "raise the limit") + ("" if place else ", or move the cache with `HF_HOME`")
    return ResourceError(
        f"{reason}: `{reference}` does not fit into `{place or constants.HF_HUB_CACHE}`",
        f"{hint}; finished files are kept",
    )


def refused_by_mirror(error: HfHubHTTPError, reference: str) -> WeightsError | None:
    """The error that a mirror wants an account of its own, where the client says that the model is private.

    A mirror that forwards the Hub's answers also forwards the code that the Hub gives its errors.
    """
    from huggingface_hub import constants

    response = error.response
    if response.status_code not in (401, 403) or "X-Error-Code" in response.headers:
        return None
    if constants.ENDPOINT == PUBLIC_ENDPOINT or not _is_of_the_hub(response.url.host):
        return None
    return WeightsError(
        f"the mirror {shown(constants.ENDPOINT)} answered {response.status_code} for `{reference}`",
        "`HF_ENDPOINT` names it: it may want a token of its own in `HF_TOKEN`, or a name and a password in its "
        "address; without `HF_ENDPOINT` the Hub itself is asked",
    )


def _explain_status(status: int, reference: str, *, host: str) -> WeightsError:
    from huggingface_hub import get_token

    if status in (401, 403) and _is_of_the_hub(host):
        if get_token() is None:
            return WeightsError(
                f"the Hub answered {status} for `{reference}`, and there is no token to show it",
                "a firewall may have answered in its place; if the model wants an account, run `hf auth login`",
            )
        if status == 401:
            return WeightsError(
                "the Hub does not accept this token",
                "run `hf auth login` again, or set `HF_TOKEN` to a token that is valid",
            )
        return WeightsError(f"this token may not read `{reference}`", "use a token with read access: `hf auth login`")
    if status == 429:
        return WeightsError(
            "the Hub answered that there were too many requests", "wait a few minutes, then run it again"
        )
    return WeightsError(
        f"the Hub answered {status} for `{reference}`",
        "run the same command again later; finished files are kept",
    )


def _is_of_the_hub(host: str) -> bool:
    """Whether a host is the Hub's, not a file host, which gets no token, knows no rights, and refuses old addresses."""
    from huggingface_hub import constants

    return host == urlsplit(constants.ENDPOINT).hostname


def has_expired(error: Exception) -> bool:
    """Whether a file host refuses an address because it has expired; the Hub then gives out a new one."""
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(error, HfHubHTTPError) or error.response.status_code not in (401, 403):
        return False
    return not _is_of_the_hub(error.response.url.host)


def _explain_network(error: BaseException, reference: str) -> LocaldiffError:
    from huggingface_hub import constants

    if not is_address(constants.ENDPOINT):
        return no_address(constants.ENDPOINT)
    where = shown(constants.ENDPOINT)
    # The client's HTTP library passes on the text of the error, not the error.
    if untrusted := _UNTRUSTED.search(str(error)):
        return ConnectionBarredError(
            f"the certificate of {where} is not trusted: {untrusted[1]}",
            "behind a proxy that decrypts what passes through it, `SSL_CERT_FILE` names a file with its certificate",
        )
    if "ProxyError" in _family(error):
        return ConnectionBarredError(
            f"the proxy refuses the connection to {where}: {one_line(error)}",
            "`HTTPS_PROXY` names it; with a password it is `http://USER:PASSWORD@HOST:PORT`",
        )
    if _family(error) & {"ConnectError", "TimeoutException", "ConnectionError", "TimeoutError"}:
        return UnreachableError(f"`{reference}` could not be fetched: no answer from {where}", _CONNECTION)
    return WeightsError(f"`{reference}` could not be fetched: the connection to {where} broke off", _CAN_GO_ON)


def _bad_proxy() -> ConnectionBarredError | None:
    """The error that a proxy of the environment or system keeps the client from being created; None if none does."""
    proxies = getproxies()
    if "*" in (host.strip() for host in proxies.get("no", "").split(",")):
        return None  # no proxy is used; if only some hosts are excluded, the client sets up all proxies anyway
    for kind, address in proxies.items():
        name = f"{kind.upper()}_PROXY"
        if kind not in ("http", "https", "all") or not address:
            continue
        address = address if "://" in address else f"http://{address}"
        scheme = urlsplit(address).scheme if is_readable(address) else ""
        if scheme not in ("http", "https", "socks5", "socks5h"):
            return ConnectionBarredError(f"`{name}` does not name a usable proxy", _PROXY)
        if scheme.startswith("socks5") and find_spec("socksio") is None:
            return ConnectionBarredError(
                f"`{name}` names a SOCKS proxy, and the package for these is not installed",
                "`pip install socksio`, or name a proxy of another kind",
            )
    return None


def _bad_certificates() -> ConnectionBarredError | None:
    """The error that `SSL_CERT_FILE` names no certificates; None if it does, or is not set."""
    file = os.environ.get("SSL_CERT_FILE")
    if not file:
        return None
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:
        reason = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        return ConnectionBarredError(
            f"`SSL_CERT_FILE={file}` cannot be used: {reason}", "without it the certificates of the system are used"
        )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def is_outage(error: Exception) -> bool:
    """Whether an error is one of the connection, or was raised because of one, and the connection may come back."""
    from huggingface_hub import constants

    return not constants.is_offline_mode() and any(_is_of_the_network(cause) for cause in _causes(error))


def _is_of_the_network(error: BaseException) -> bool:
    """Whether an error is one of the connection, not an answer: from the client's HTTP library, or from a socket."""
    modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__ if kind.__name__ == "RequestError"}
    return bool(modules & {"httpx", "httpx2"}) or isinstance(error, (ConnectionError, TimeoutError))


def _family(error: BaseException) -> set[str]:
    """The names of an error's classes."""
    return {kind.__name__ for kind in type(error).__mro__}
