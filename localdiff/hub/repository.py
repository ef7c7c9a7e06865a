"""A repository of the Hub at one commit: names, sizes and hashes of its files, and the bytes of those that are wanted.

Knows its files, and reads a few bytes of one without keeping it; `listing` says which there are. Downloads nothing into
the cache, and knows nothing about what is in the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localdiff.checkpoint_files import CONFIG, MAX_SMALL
from localdiff.checkpoints.model_reference import KINDS
from localdiff.errors import WeightsError
from localdiff.hub.cache import cached_path, delete_hint
from localdiff.hub.endpoint import US
from localdiff.hub.problems import UnreachableError
from localdiff.hub.retries import with_retries
from localdiff.sizes import shown_size

TIMEOUT = 30.0
"""Seconds for a connection, and for the answer."""


class NoRangesError(WeightsError):
    """The server cannot send a part of a file without everything before that part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        name: its name; only files at the top level are considered.
        nbytes: its size.
        sha256: its SHA-256, where the Hub or the cache states it, as for every large file.
        blob: git's hash of it, where the Hub states it.
        local_path: where it is on this machine, or None.
        is_stored: whether the cache has its bytes, even if only for another commit so far.
        unfinished: how many bytes of it the cache has from an unfinished download.
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
        """How many of its bytes are not in the cache yet."""
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
        offline_reason: why the Hub was not asked, or None; without the Hub, only files in the cache are known.
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
        """The directory of the cached files; None if the cache does not know the commit by the requested revision."""
        config = cached_path(self.name, CONFIG, self.revision)
        return config.parent if config is not None and config.parent.name == self.commit else None

    def read(self, name: str) -> bytes:
        """The whole content of a small file, from the cache or from the Hub, which is asked for it once.

        Raises:
            WeightsError: there is no such file, access to it is refused, or it is damaged or too large.
        """
        if name in self._fetched:
            return self._fetched[name]
        file = self._file(name)
        require_small(file, self.name)
        content = file.local_path.read_bytes() if file.local_path else self._get(name, file.nbytes + 1, 0)
        if not file.matches(content):
            raise damaged(file, f"`{name}` of `{self.name}` is damaged (its size or hash is not the published one)")
        if file.local_path is None:
            self._fetched[name] = content
        return content

    def read_part(self, name: str, count: int, start: int = 0) -> bytes:
        """`count` bytes of a file, from its byte number `start` on; fewer where it ends before that.

        Raises:
            NoRangesError: the server hands out files from their start only.
            WeightsError: there is no such file, or access to it is refused.
        """
        file = self._file(name)
        if file.local_path is None:
            return self._get(name, count, start)
        with file.local_path.open("rb") as stream:
            stream.seek(start)
            return stream.read(count)

    def _file(self, name: str) -> RemoteFile:
        if name not in self.files:
            raise WeightsError(f"`{self.name}` has no `{name}`, so it is not a model that localdiff can read", KINDS)
        return self.files[name]

    def _get(self, name: str, count: int, start: int) -> bytes:
        """At most `count` bytes of a file on the Hub; those at its start even from a server without range requests."""
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(self.name, name, revision=self.commit)

        def get() -> bytes:
            headers = build_hf_headers(**US)
            headers |= {"Accept-Encoding": "identity", "Range": f"bytes={start}-{start + count - 1}"}
            content = bytearray()
            with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT) as response:
                hf_raise_for_status(response)
                if start and response.status_code != 206:
                    raise NoRangesError(f"the server that sends `{name}` does not support range requests")
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) >= count:
                        break
            return bytes(content[:count])

        return with_retries(get, self.name, self.commit)


def require_small(file: RemoteFile, repository: str) -> None:
    """Refuse a file that is too large to be read whole, before it is downloaded.

    Raises:
        WeightsError: the file is too large to be what its name says.
    """
    if file.nbytes > MAX_SMALL:
        raise WeightsError(f"`{file.name}` of `{repository}` is too large: it has {shown_size(file.nbytes)}", KINDS)


def damaged(file: RemoteFile, message: str) -> WeightsError:
    """The error about a file that is not the published one; a copy that is here should be deleted."""
    return WeightsError(message, delete_hint(file.local_path) if file.local_path else "run the same command again")
