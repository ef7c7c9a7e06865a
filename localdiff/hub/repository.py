"""Contents of a repository of the Hub: names, sizes and hashes, and which files are here already.

Knows listings, and reads a few bytes of a file without keeping it; downloads nothing into the cache and knows nothing
about what is in the files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from localdiff.checkpoint_files import CONFIG, MAX_SMALL, TEXT_FILES
from localdiff.errors import WeightsError
from localdiff.hub.cache import delete_hint, folder_of, is_sha256, linked_sha256, size_of, unfinished_file
from localdiff.hub.endpoint import US, prepare_client, shown
from localdiff.hub.problems import UnreachableError, another_commit, explain, not_downloaded, not_the_hub
from localdiff.hub.retries import WAITS, with_retries
from localdiff.model_reference import KINDS
from localdiff.other_forms import refuse_other_forms
from localdiff.sizes import shown_size
from quant import MANIFEST_FILE

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

NEEDED = (*TEXT_FILES, MANIFEST_FILE, "*.safetensors", "*.safetensors.index.json")
"""The files that a model needs; only those at the top level are considered."""
LEGAL_FILES = ("LICENSE*", "LICENCE*", "NOTICE*")
MAIN = "main"
_TIMEOUT, _SHORT_TIMEOUT = 30.0, 3.0
_PLAIN = re.compile(r"\w[\w.+-]*", re.ASCII)
"""Names allowed in a listing: nothing with a path in it, and nothing that could control a terminal or a page."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class NoRangesError(WeightsError):
    """A part of a file is asked for, and the server would send all that is before it, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        name: its name; only files at the top level are considered.
        nbytes: its size.
        sha256: its SHA-256, where the Hub or the cache states it, as for every large file.
        blob: git's hash of it, where the Hub states it.
        local_path: where it is on this machine, or None.
        is_stored: whether the cache has its bytes, if only of another commit so far.
        unfinished: how many bytes of it the cache has of a download that did not end.
    """

    name: str
    nbytes: int
    sha256: str | None = None
    blob: str | None = None
    local_path: Path | None = None
    is_stored: bool = False
    unfinished: int = 0

    @property
    def missing(self) -> int:
        """How many bytes of it have yet to come into the cache."""
        return 0 if self.local_path or self.is_stored else max(0, self.nbytes - self.unfinished)

    def matches(self, content: bytes) -> bool:
        """Whether these bytes are the file, by its size and by whichever hash is known."""
        if len(content) != self.nbytes:
            return False
        if self.sha256 is not None:
            return hashlib.sha256(content).hexdigest() == self.sha256
        if self.blob is None:
            return True
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == self.blob


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A model's repository at one commit.

    Attributes:
        name: `owner/name`.
        revision: the branch, tag or commit that was asked for.
        commit: the commit that it was at.
        files: by name, those that a model may need.
        license: the licence id of its model card, or None where it states none.
        offline_reason: why the Hub was not asked, or None; if it was not, only files in the cache are known.
    """

    name: str
    revision: str
    commit: str
    files: Mapping[str, RemoteFile]
    license: str | None = None
    offline_reason: UnreachableError | None = None
    _fetched: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def cached_directory(self) -> Path | None:
        """The directory of what is here; None where the cache does not know it by the revision that was asked for."""
        config = _cached(self.name, CONFIG, self.revision)
        return config.parent if config is not None and config.parent.name == self.commit else None

    def read(self, name: str) -> bytes:
        """The whole content of a small file, from the cache or from the Hub, which is asked for it once.

        Raises:
            WeightsError: there is no such file, access to it is refused, or it is damaged or too large.
        """
        if name in self._fetched:
            return self._fetched[name]
        file = self._file(name)
        _require_small(file, self.name)
        content = file.local_path.read_bytes() if file.local_path else self._get(name, file.nbytes + 1)
        if not file.matches(content):
            raise _damaged(file, f"`{name}` of `{self.name}` is damaged (its size or hash is not the published one)")
        if file.local_path is None:
            self._fetched[name] = content
        return content

    def read_start(self, name: str, count: int) -> bytes:
        """The first bytes of a file, or all of it if it is shorter.

        Raises:
            WeightsError: there is no such file, or access to it is refused.
        """
        file = self._file(name)
        if file.local_path:
            with file.local_path.open("rb") as stream:
                return stream.read(count)
        return self._get(name, count)

    def read_part(self, name: str, start: int, count: int) -> bytes:
        """`count` bytes of a file, from its byte number `start` on.

        Raises:
            NoRangesError: the server hands out files from their start only.
            WeightsError: there is no such file, access to it is refused, or it ends before that.
        """
        file = self._file(name)
        if file.local_path:
            with file.local_path.open("rb") as stream:
                stream.seek(start)
                content = stream.read(count)
        else:
            content = self._get(name, count, start)
        if len(content) < count:
            raise _damaged(file, f"`{name}` of `{self.name}` is damaged: it ends before byte {start + count}")
        return content

    def _file(self, name: str) -> RemoteFile:
        if name not in self.files:
            raise WeightsError(f"`{self.name}` has no `{name}`, so it is not a model that localdiff can read", KINDS)
        return self.files[name]

    def _get(self, name: str, count: int, start: int = 0) -> bytes:
        """At most `count` bytes of a file on the Hub; those at its start even from a server without range requests."""
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(self.name, name, revision=self.commit)

        def get() -> bytes:
            headers = build_hf_headers(**US)
            headers |= {"Accept-Encoding": "identity", "Range": f"bytes={start}-{start + count - 1}"}
            content = bytearray()
            with get_session().stream("GET", url, headers=headers, timeout=_TIMEOUT) as response:
                hf_raise_for_status(response)
                if start and response.status_code != 206:
                    raise NoRangesError(f"what hands out `{name}` knows no ranges")
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) >= count:
                        break
            return bytes(content[:count])

        return with_retries(get, self.name, self.commit)


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

    revision = revision or MAIN
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
    """What the Hub says of a model, in the words of its client.

    Raises:
        UnreachableError: something else answers in its place.
        Exception: what the client raises where the Hub refuses, or does not answer.
    """
    from huggingface_hub import HfApi

    api = HfApi(**US)
    try:
        return api.model_info(reference, revision=revision, files_metadata=files_metadata, timeout=timeout)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if explain(error, reference, revision) is not None:  # it was not asked at all
            raise
        raise not_the_hub() from error  # a page, or JSON of another kind


def _on_hub(reference: str, revision: str, *, patient: bool) -> Repository:
    timeout = _TIMEOUT if patient else _SHORT_TIMEOUT

    def ask() -> Repository:
        info = model_info(reference, revision=revision, files_metadata=True, timeout=timeout)
        try:
            return _described(info, reference, revision)
        except (TypeError, AttributeError) as error:  # the client takes on trust what is in the JSON
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
    here = _cached(reference, sibling.rfilename, commit)
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
    """Bytes of a file, and its SHA-256 if it is stated; a mirror is asked for what its listing may lack.

    It is not asked for the hash of a file that is here, by which the cache may name it.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    size = file.lfs.size if file.size is None and file.lfs else file.size
    sha256 = (_hash(file.lfs.sha256) if file.lfs else None) or (linked_sha256(here) if here else None)
    if size is None or (sha256 is None and here is None and file.rfilename.endswith(".safetensors")):
        asked = get_hf_file_metadata(hf_hub_url(reference, file.rfilename, revision=commit), timeout=_TIMEOUT)
        size = asked.size if size is None else size
        sha256 = asked.etag if sha256 is None and asked.etag and is_sha256(asked.etag) else sha256
    if type(size) is not int or size < 0:  # nor a bool, which is an int
        raise WeightsError(f"what answers at {shown(constants.ENDPOINT)} does not say how large `{file.rfilename}` is")
    return size, sha256


def _hash(text: str | None) -> str | None:
    """A hash as the listing states it, if it states one.

    Raises:
        UnreachableError: it is none.
        TypeError: it is no text.
    """
    if text and not _HASH.fullmatch(text):
        raise not_the_hub()
    return text or None


def _usable(repository: Repository) -> Repository:
    """The same repository, if the files of it that are here have their sizes, and none is too large to be read."""
    for file in repository.files.values():
        if not file.name.endswith(".safetensors"):
            _require_small(file, repository.name)
        if file.local_path and file.local_path.stat().st_size != file.nbytes:
            have = file.local_path.stat().st_size
            raise _damaged(file, f"`{file.local_path}` has {have} bytes, where the Hub says {file.nbytes}")
    return repository


def _require_small(file: RemoteFile, repository: str) -> None:
    """Refuse a file that would be read as a whole, before it is downloaded for that."""
    if file.nbytes > MAX_SMALL:
        raise WeightsError(f"`{file.name}` of `{repository}` is too large: it has {shown_size(file.nbytes)}", KINDS)


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
    config = _cached(reference, CONFIG, revision)
    if config is None:
        return None
    snapshot = config.parent
    here = [path for path in sorted(snapshot.iterdir()) if path.is_file() and _is_wanted(path.name)]
    files = {
        path.name: RemoteFile(name=path.name, nbytes=path.stat().st_size, sha256=linked_sha256(path), local_path=path)
        for path in here
    }
    return Repository(name=reference, revision=revision, commit=snapshot.name, files=files)


def _cached(reference: str, name: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(reference, name, revision=revision)
    except HFValidationError as error:
        raise WeightsError(f"`{reference}` cannot be a Hub id", KINDS) from error
    except UnicodeDecodeError as error:
        ref = folder_of(reference) / "refs" / (revision or MAIN)
        raise WeightsError(
            f"`{ref}` is damaged: it is not text", "delete it, then run the same command again"
        ) from error
    return Path(path) if isinstance(path, str) else None


def is_license(word: str) -> bool:
    """Whether this is a plausible licence id; it is copied into other texts."""
    return _PLAIN.fullmatch(word) is not None


def _is_wanted(name: str) -> bool:
    patterns = (*NEEDED, *LEGAL_FILES)
    return _PLAIN.fullmatch(name) is not None and any(fnmatchcase(name, pattern) for pattern in patterns)


def _damaged(file: RemoteFile, message: str) -> WeightsError:
    return WeightsError(message, delete_hint(file.local_path) if file.local_path else "run the same command again")
