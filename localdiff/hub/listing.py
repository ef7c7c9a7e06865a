"""What a repository holds now, as the Hub lists it, or as the cache has it where the Hub may not or cannot be asked.

Knows listings, and how long to wait for them; reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from localdiff.checkpoint_files import CONFIG, TEXT_FILES
from localdiff.checkpoints.model_reference import refuse_other_forms
from localdiff.errors import WeightsError
from localdiff.hub.cache import cached_path, folder_of, is_sha256, linked_sha256, size_of, unfinished_file
from localdiff.hub.endpoint import US, prepare_client, shown
from localdiff.hub.problems import UnreachableError, another_commit, explain, not_downloaded, not_the_hub
from localdiff.hub.repository import TIMEOUT, RemoteFile, Repository, damaged, require_small
from localdiff.hub.retries import WAITS, with_retries
from quant import MANIFEST_FILE

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

NEEDED = (*TEXT_FILES, MANIFEST_FILE, "*.safetensors", "*.safetensors.index.json")
"""The files that a model needs; only those at the top level are considered."""
LEGAL_FILES = ("LICENSE*", "LICENCE*", "NOTICE*")
_SHORT_TIMEOUT = 3.0
"""Seconds to wait if what the cache has will do as well."""
_PLAIN = re.compile(r"\w[\w.+-]*", re.ASCII)
"""Names allowed in a listing: nothing with a path in it, and nothing that could control a terminal or a page."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def look_up(
    reference: str,
    *,
    revision: str | None = None,
    offline: bool = False,
    enough: Callable[[Repository], bool] = lambda cached: False,
) -> Repository:
    """What a repository holds now, or, where the Hub may not or cannot be asked, what the cache has of it.

    Args:
        reference: `owner/name`.
        revision: branch, tag or commit; `main` by default.
        offline: do not ask the Hub.
        enough: whether what the cache has can be used as it is. If so, a Hub that is slow, busy or refuses holds
            nothing up, and a commit that is named in full, which cannot change, is not asked for.

    Raises:
        UsageError: `HF_ENDPOINT` is no address, or a time limit of the client no number.
        UnreachableError: the Hub may not or cannot be asked, and the cache has nothing of it.
        WeightsError: there is no such repository or revision, access to it is refused, or a file has a wrong size.
    """
    prepare_client()
    from huggingface_hub import constants

    revision = revision or "main"
    if offline or constants.is_offline_mode():
        return _in_cache(reference, revision, not_downloaded(reference))
    cached = _find_in_cache(reference, revision)
    if cached is not None and not enough(cached):
        cached = None
    if cached is not None and revision == cached.commit:
        return cached
    try:
        repository = _on_hub(reference, revision, patient=cached is None)
    except WeightsError as error:
        if isinstance(error, UnreachableError):
            return _in_cache(reference, revision, error)
        if cached is not None and not _is_about_revision(error):
            return replace(cached, offline_reason=UnreachableError(error.message, error.hint))
        raise
    return _usable(repository)


def model_info(
    reference: str, *, timeout: float, revision: str | None = None, files_metadata: bool = False
) -> ModelInfo:
    """What the Hub says of a model, as an object of its client.

    Raises:
        UnreachableError: something else answers in its place.
        Exception: what the client raises if the Hub refuses or does not answer.
    """
    from huggingface_hub import HfApi

    api = HfApi(**US)
    try:
        return api.model_info(reference, revision=revision, files_metadata=files_metadata, timeout=timeout)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if explain(error, reference, revision) is not None:  # the Hub was not asked at all
            raise
        raise not_the_hub() from error  # a page, or JSON of another kind


def _on_hub(reference: str, revision: str, *, patient: bool) -> Repository:
    timeout = TIMEOUT if patient else _SHORT_TIMEOUT

    def ask() -> Repository:
        info = model_info(reference, revision=revision, files_metadata=True, timeout=timeout)
        try:
            return _described(info, reference, revision)
        except (TypeError, AttributeError) as error:  # the client does not check what is in the JSON
            raise not_the_hub() from error

    return with_retries(ask, reference, revision, waits=WAITS if patient else ())


def _described(info: ModelInfo, reference: str, revision: str) -> Repository:
    commit = info.sha or ""
    if not _PLAIN.fullmatch(commit):
        raise not_the_hub()
    if _COMMIT.fullmatch(revision) and commit != revision:
        raise another_commit(reference)
    siblings = info.siblings or ()
    refuse_other_forms(reference, [sibling.rfilename for sibling in siblings], on_hub=True)
    wanted = [sibling for sibling in siblings if _is_wanted(sibling.rfilename)]
    files = {sibling.rfilename: _described_file(reference, commit, sibling) for sibling in wanted}
    card = info.card_data
    license_name = card.get("license") if card else None
    return Repository(
        name=reference,
        revision=revision,
        commit=commit,
        files=files,
        license=license_name if isinstance(license_name, str) and is_license(license_name) else None,
    )


def _described_file(reference: str, commit: str, sibling: RepoSibling) -> RemoteFile:
    here = cached_path(reference, sibling.rfilename, commit)
    nbytes, sha256 = _size_and_sha256(reference, commit, sibling, here)
    blobs, blob = folder_of(reference) / "blobs", _hash(sibling.blob_id)
    return RemoteFile(
        name=sibling.rfilename,
        nbytes=nbytes,
        sha256=sha256,
        blob=blob,
        local_path=here,
        is_stored=(blobs / str(sha256 or blob)).is_file(),
        unfinished=size_of(unfinished_file(blobs, sha256)) if sha256 else 0,
    )


def _size_and_sha256(reference: str, commit: str, file: RepoSibling, here: Path | None) -> tuple[int, str | None]:
    """Bytes of a file, and its SHA-256 if it is stated; what the listing of a mirror may lack is requested.

    The hash of a file that is here is not requested: the cache may name the file by it.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    size, sha256 = file.size, None
    if file.lfs:
        size, sha256 = file.lfs.size if size is None else size, _hash(file.lfs.sha256)
    if here is not None:
        sha256 = sha256 or linked_sha256(here)
    if size is None or (sha256 is None and here is None and file.rfilename.endswith(".safetensors")):
        asked = get_hf_file_metadata(hf_hub_url(reference, file.rfilename, revision=commit), timeout=TIMEOUT)
        size = asked.size if size is None else size
        if sha256 is None and asked.etag and is_sha256(asked.etag):
            sha256 = asked.etag
    if type(size) is not int or size < 0:  # nor a bool, which is an int
        raise WeightsError(f"what answers at {shown(constants.ENDPOINT)} does not say how large `{file.rfilename}` is")
    return size, sha256


def _hash(text: str | None) -> str | None:
    """A hash as the listing states it, if it states one.

    Raises:
        UnreachableError: it is not a hash.
        TypeError: it is not text.
    """
    if text and not _HASH.fullmatch(text):
        raise not_the_hub()
    return text or None


def _usable(repository: Repository) -> Repository:
    """The same repository, if its files that are here have the right sizes, and none is too large to be read."""
    for file in repository.files.values():
        if not file.name.endswith(".safetensors"):
            require_small(file, repository.name)
        if file.local_path and file.local_path.stat().st_size != file.nbytes:
            have = file.local_path.stat().st_size
            raise damaged(file, f"`{file.local_path}` has {have} bytes, where the Hub says {file.nbytes}")
    return repository


def _is_about_revision(error: WeightsError) -> bool:
    from huggingface_hub.errors import RevisionNotFoundError

    return isinstance(error.__cause__, RevisionNotFoundError)


def _in_cache(reference: str, revision: str, reason: UnreachableError) -> Repository:
    """A repository as far as the cache has it."""
    repository = _find_in_cache(reference, revision)
    if repository is None:
        raise reason
    return replace(repository, offline_reason=reason)


def _find_in_cache(reference: str, revision: str) -> Repository | None:
    config = cached_path(reference, CONFIG, revision)
    if config is None:
        return None
    snapshot = config.parent
    here = [path for path in sorted(snapshot.iterdir()) if path.is_file() and _is_wanted(path.name)]
    files = {
        path.name: RemoteFile(name=path.name, nbytes=path.stat().st_size, sha256=linked_sha256(path), local_path=path)
        for path in here
    }
    return Repository(name=reference, revision=revision, commit=snapshot.name, files=files)


def is_license(word: str) -> bool:
    """Whether this is a plausible licence id; it is copied into other texts."""
    return _PLAIN.fullmatch(word) is not None


def _is_wanted(name: str) -> bool:
    patterns = (*NEEDED, *LEGAL_FILES)
    return _PLAIN.fullmatch(name) is not None and any(fnmatchcase(name, pattern) for pattern in patterns)
