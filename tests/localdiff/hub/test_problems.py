"""What is said when the Hub's client fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError

from localdiff.errors import ResourceError
from localdiff.hub.problems import ConnectionBarredError, explain


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (errno.ENOSPC, "the disk is full", "free some space"),
        (errno.EFBIG, "file too large", "raise the limit"),
        (errno.EDQUOT, "disk quota exceeded", "raise the limit"),
    ],
)
def test_no_room_for_a_download(code: int, message: str, hint: str, tmp_path: Path) -> None:
    """A limit on files or users is not called a full disk: nobody would find a full one."""
    found = explain(OSError(code, os.strerror(code)), "owner/model", None, place=tmp_path)
    assert isinstance(found, ResourceError)
    assert found.message == f"{message}: `owner/model` does not fit into `{tmp_path}`"
    assert found.hint == f"{hint}; finished files are kept"
    found = explain(OSError(code, os.strerror(code)), "owner/model", None)
    assert found is not None and found.hint == f"{hint}, or move the cache with `HF_HOME`; finished files are kept"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    found = explain(error, "owner/model", None)
    assert found is not None and found.hint == f"downloads go to `{constants.HF_HUB_CACHE}`; `HF_HOME` moves them"
    found = explain(error, "owner/model", None, place=tmp_path)
    assert found is not None and found.hint == f"downloads go to `{tmp_path}`"


def test_a_file_of_another_size_is_no_matter_of_the_disk() -> None:
    """The client raises a bare `OSError`, with advice for its callers in a second line."""
    error = OSError("Consistency check failed: file should be of size 5 but has size 6 (a.json).\nPlease retry.")
    found = explain(error, "owner/model", None)
    assert found is not None and found.hint is not None
    assert found.message.endswith(": Consistency check failed: file should be of size 5 but has size 6 (a.json)")
    assert found.hint.startswith("run the same command again")


@pytest.mark.parametrize(
    ("cause", "message"),
    [(OSError(errno.ENOSPC, "full"), "the disk is full"), (ConnectionError(), "could not be fetched: no answer from ")],
)
def test_what_an_error_was_raised_from_is_what_is_said(cause: OSError, message: str) -> None:
    error = LocalEntryNotFoundError("the client has its own words for whatever it was")
    error.__cause__ = cause
    found = explain(error, "owner/model", None)
    assert found is not None and message in found.message


@pytest.mark.parametrize(("hosts", "is_blamed"), [("other.test", True), ("other.test, *", False)])
def test_a_proxy_that_nothing_goes_through_is_not_blamed(
    hosts: str, is_blamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.test")
    monkeypatch.setenv("NO_PROXY", hosts)
    found = explain(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "owner/model", None)
    assert isinstance(found, ConnectionBarredError) == is_blamed


def test_a_proxy_without_a_scheme_is_checked_as_the_client_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.test:port")
    monkeypatch.delenv("NO_PROXY", raising=False)
    found = explain(ValueError("Invalid port: 'port'"), "owner/model", None)
    assert isinstance(found, ConnectionBarredError)
    assert found.message == "`HTTPS_PROXY` does not name a usable proxy"
