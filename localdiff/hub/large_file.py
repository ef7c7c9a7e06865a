"""A large file of the Hub, fetched so that the next process continues where this one ended, however it ended.

The Hub's client writes each try into a file of its own, and deletes that file if the try fails. Here an incomplete file
is named by the hash that it will have, in the folder of the cache where it will be. It gets its final name once it is
complete, and the client finds it there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from localdiff.errors import WeightsError
from localdiff.hub.cache import delete, folder_of, size_of, unfinished_file
from localdiff.hub.endpoint import US
from localdiff.hub.problems import deleted, is_of_the_network
from quant.hashing import file_sha256

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata
    from huggingface_hub.utils import XetFileData  # type: ignore[attr-defined]

_log = logging.getLogger(__name__)

OUTAGE_WAITS = (1.0, 5.0, 10.0, 20.0, 40.0, 80.0)
"""Seconds before each retry after the connection broke; they start over once more of the file has arrived."""


def xet_remedy() -> str | None:
    """What to do so that large files come through `hf_xet`, where the Hub offers that; None if they do."""
    from huggingface_hub import constants

    steps = [] if find_spec("hf_xet") else ["`pip install hf-xet`"]
    return " and ".join([*steps, *(["unset `HF_HUB_DISABLE_XET`"] if constants.HF_HUB_DISABLE_XET else [])]) or None


@dataclass(frozen=True, kw_only=True, slots=True)
class LargeFile:
    """A file whose SHA-256 the Hub states.

    Attributes:
        repository: `owner/name`.
        revision: its commit.
        directory: where it goes, if nobody else writes there; None for the Hub's cache.
        hashed: whether its hash is compared even if no earlier process has begun the file.
        bar: a class with the interface of `tqdm`, which is told how much of it is here.
    """

    repository: str
    name: str
    revision: str
    directory: str | None
    sha256: str
    nbytes: int
    hashed: bool
    bar: type

    def fetch(self) -> Path:
        """Fetch the file, unless it is there already.

        Raises:
            WeightsError: the file is not the published one, and was deleted.
            Exception: what the client raises if the Hub refuses the file, or `hf_xet` if it gives up.
        """
        if self.directory is None:
            return self._fetch_into_cache()
        folder = Path(self.directory)
        self._fetch(self._asked(), folder, folder / self.name)
        return folder / self.name

    def _fetch_into_cache(self) -> Path:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.file_download import are_symlinks_supported
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        wanted: dict[str, Any] = {"repo_id": self.repository, "filename": self.name, "revision": self.revision}
        seen = hf_hub_download(**wanted, **US, dry_run=True)
        asked = self._asked() if seen.will_download else None
        # Some mirrors name stored files otherwise: the client would not find one by its SHA-256, so it fetches it.
        by_client = asked is not None and asked.etag != self.sha256
        if asked is not None and not by_client:
            folder = folder_of(self.repository)
            lock = folder.parent / ".locks" / folder.name / f"{self.sha256}.lock"  # the client's own
            lock.parent.mkdir(parents=True, exist_ok=True)
            # Without symlinks the client keeps files at their final paths, and would copy this one there.
            has_links = are_symlinks_supported(folder.parent)
            place = folder / "blobs" / self.sha256 if has_links else Path(seen.local_path)
            with WeakFileLock(lock):
                self._fetch(asked, folder / "blobs", place)
        path = Path(hf_hub_download(**wanted, **US, tqdm_class=self.bar))
        if by_client and self.hashed and file_sha256(path) != self.sha256:
            delete(path)
            raise self._damaged()
        return path

    def _asked(self) -> HfFileMetadata:
        from huggingface_hub import get_hf_file_metadata

        return get_hf_file_metadata(self._url, headers=self._headers, retry_on_errors=True)

    @property
    def _url(self) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.repository, self.name, revision=self.revision)

    @property
    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        # A server that compresses what it sends offers no ranges.
        return build_hf_headers(**US) | {"Accept-Encoding": "identity"}

    def _fetch(self, asked: HfFileMetadata, folder: Path, place: Path) -> None:
        """Fetch the file to `place`; until it is complete, it is in `folder`."""
        unfinished = unfinished_file(folder, self.sha256)
        for directory in (folder, place.parent):
            directory.mkdir(parents=True, exist_ok=True)
        while not place.exists():
            had = size_of(unfinished)
            self._complete(asked.xet_file_data if xet_remedy() is None else None, unfinished)
            if not (had or self.hashed) or file_sha256(unfinished) == self.sha256:
                unfinished.replace(place)
                return
            unfinished.unlink()
            if not had:  # else what an earlier process left may have been wrong: once more
                raise self._damaged()

    def _damaged(self) -> WeightsError:
        return WeightsError(f"`{self.name}` of `{self.repository}` is damaged", deleted(self.name))

    def _complete(self, xet: XetFileData | None, unfinished: Path) -> None:
        """Fetch what is missing of the file."""
        if size_of(unfinished) > self.nbytes:
            unfinished.unlink()
        if xet is None:
            self._get(unfinished)
        elif (had := size_of(unfinished)) < self.nbytes:
            with unfinished.open("ab") as file, self.bar(total=self.nbytes, initial=had) as bar:
                for piece in self._streamed(xet, had):
                    file.write(piece)
                    bar.update(len(piece))
            if size_of(unfinished) < self.nbytes:  # `hf_xet` raises nothing if there is no answer at first
                raise ConnectionError("its storage does not answer")

    def _streamed(self, xet: XetFileData, start: int) -> Iterator[bytes]:
        from hf_xet import XetFileInfo, XetSession  # type: ignore[import-untyped]

        route, headers = xet.refresh_route, self._headers
        group = XetSession().new_download_stream_group(token_refresh_url=route, token_refresh_headers=headers)
        try:
            with group:
                yield from group.download_stream(XetFileInfo(xet.file_hash, self.nbytes), start=start)
        except RuntimeError as error:  # the type of most of its errors, which differ in their texts only
            raise OSError(f"hf_xet: {error}") from error

    def _get(self, unfinished: Path) -> None:
        """Fetch what is missing by plain HTTP."""
        from huggingface_hub import file_download

        with unfinished.open("ab") as file:
            file_download.http_get(
                self._url,
                file,
                resume_size=file.tell(),
                headers=self._headers,
                expected_size=self.nbytes,
                displayed_filename=self.name,
                tqdm_class=self.bar,
            )


def wait_out_outages() -> None:
    """Make the client's own downloads wait when the connection breaks, as `hf_xet` does.

    The client would give up within seconds, or at once, and delete what it has of a file.
    """
    from huggingface_hub import file_download

    get = file_download.http_get

    def patient(url: str, temp_file: BinaryIO, *, resume_size: int = 0, **options: Any) -> None:
        if "_nb_retries" in options:  # a retry by the client itself, within the first call
            return get(url, temp_file, resume_size=resume_size, **options)
        waits, start = iter(OUTAGE_WAITS), temp_file.tell() - resume_size
        while True:
            had = temp_file.tell()
            try:
                return get(url, temp_file, resume_size=had - start, **options)
            except Exception as error:
                if temp_file.tell() > had:
                    waits = iter(OUTAGE_WAITS)
                if not is_of_the_network(error) or (wait := next(waits, None)) is None:
                    raise
            name = options.get("displayed_filename", url)
            _log.warning("the connection broke off: `%s` goes on in %.0f s", name, wait)
            time.sleep(wait)

    file_download.http_get = patient
