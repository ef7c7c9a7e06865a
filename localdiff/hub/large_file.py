"""A large file of the Hub, fetched so that the next process continues where this one ended, however it ended.

The Hub's client writes each try into a file of its own, and deletes that file if the try fails. Here an incomplete file
is named by the hash that it will have, in the folder of the cache where it will be. It gets its final name once it is
complete, and the client finds it there.

`hf_xet`, where it is installed, brings what it can, and plain HTTP the rest: no failure of `hf_xet` ends a download.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from localdiff.errors import WeightsError
from localdiff.hub.cache import folder_of, size_of, unfinished_file
from localdiff.hub.endpoint import US
from localdiff.hub.problems import deleted
from quant.hashing import file_sha256

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

_log = logging.getLogger(__name__)

STALLED = 120.0
"""Seconds without a byte from `hf_xet` after which plain HTTP takes over: some versions have waited for ever."""
_GLANCE = 1.0
"""Seconds to wait for another process that fetches the same file before a note says so."""
_silent = threading.Event()
"""Set once `hf_xet` stalled before it had brought anything of a file, as behind a firewall that drops what is sent to
its servers: this process asks it for no further file, since each would be waited for in vain."""
XET_LIMITS = {
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_SIZE": "400mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_PERFILE_SIZE": "100mb",
    "HF_XET_CLIENT_AC_INITIAL_DOWNLOAD_CONCURRENCY": "1",
}
"""Variables of `hf_xet`. Two limit what it holds of a file in memory until that can be written: by default a share of
all memory, which fills where the line is faster than the disk; each process that fetches would hold as much. The last
one is about slow lines. A file arrives in pieces of up to 64 MB; by default it begins with four at once, none of which
is whole within `STALLED` where the process gets 2 MB/s. It fetches more at once as soon as the line allows."""
XET_BYTES = 800_000_000
"""What the plan allows for a process that fetches through `hf_xet` with these limits."""


def xet_remedy() -> str | None:
    """What to do so that large files come through `hf_xet`, where the Hub offers that; None if they do."""
    from huggingface_hub import constants

    steps = [] if find_spec("hf_xet") else ["`pip install hf-xet`"]
    return " and ".join([*steps, *(["unset `HF_HUB_DISABLE_XET`"] if constants.HF_HUB_DISABLE_XET else [])]) or None


def damaged(repository: str, name: str) -> WeightsError:
    """The error that a file is not the published one, and was deleted."""
    return WeightsError(f"`{name}` of `{repository}` is damaged", deleted(name))


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
            OSError: the Hub sends another number of bytes, the connection broke off, or the disk is full.
            Exception: what the client raises if the Hub refuses the file.
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
        if seen.will_download:
            asked, folder = self._asked(), folder_of(self.repository)
            stored = asked.etag or self.sha256  # not the SHA-256 with some mirrors, and the client goes by it
            lock = folder.parent / ".locks" / folder.name / f"{stored}.lock"  # the client's own
            lock.parent.mkdir(parents=True, exist_ok=True)
            # Without symlinks the client keeps files at their final paths, and would copy this one there.
            has_links = are_symlinks_supported(folder.parent)
            place = folder / "blobs" / stored if has_links else Path(seen.local_path)
            with ExitStack() as stack:
                try:
                    stack.enter_context(WeakFileLock(lock, timeout=_GLANCE))
                except TimeoutError:
                    _log.warning("another process is fetching `%s`, which may take long: it is waited for", self.name)
                    stack.enter_context(WeakFileLock(lock))
                self._fetch(asked, folder / "blobs", place)
        return Path(hf_hub_download(**wanted, **US, tqdm_class=self.bar))

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
            self._complete(asked, unfinished)
            if not (had or self.hashed) or file_sha256(unfinished) == self.sha256:
                unfinished.replace(place)
                return
            unfinished.unlink()
            if not had:  # else what an earlier process left may have been wrong: once more
                raise damaged(self.repository, self.name)

    def _complete(self, asked: HfFileMetadata, unfinished: Path) -> None:
        """Fetch what is missing of the file."""
        with unfinished.open("ab") as file, self.bar(total=self.nbytes, initial=file.tell()) as bar:
            if file.tell() < self.nbytes and xet_remedy() is None and not _silent.is_set():
                for piece in self._streamed(asked, file.tell()):
                    file.write(piece)
                    bar.update(len(piece))
            if file.tell() < self.nbytes:
                self._get(file, bar)

    def _streamed(self, asked: HfFileMetadata, start: int) -> Iterator[bytes]:
        """The file from a byte on, until `hf_xet` fails or stalls, if the Hub offers the file through it."""
        if (xet := getattr(asked, "xet_file_data", None)) is None:
            return
        arriving: queue.Queue[bytes | BaseException] = queue.Queue(1)
        first = start
        try:
            from hf_xet import XetSession  # type: ignore[import-untyped]

            session = XetSession()
            # Nothing ends a call into `hf_xet` for certain, so another thread makes it, and is left behind if it hangs.
            threading.Thread(target=self._bring, args=(session, xet, start, arriving), daemon=True).start()
            while start < self.nbytes:
                piece = arriving.get(timeout=STALLED)
                if isinstance(piece, BaseException):
                    raise RuntimeError("it ended early") from piece
                start += len(piece)
                yield piece
        except Exception as error:
            stalled = isinstance(error, queue.Empty)
            reason = f"nothing came for {STALLED:.0f} s" if stalled else repr(error.__cause__ or error)
            _log.info("`hf_xet` failed (%s): `%s` comes by plain HTTP", reason, self.name)
            if stalled and start == first:
                _silent.set()
            if stalled:  # it would still take its share of a slow line
                threading.Thread(target=session.sigint_abort, daemon=True).start()

    def _bring(self, session: Any, xet: Any, start: int, arriving: queue.Queue[bytes | BaseException]) -> None:
        """Pass on what `hf_xet` fetches, and then why it ended: with no error if there was no answer at first."""
        try:
            from hf_xet import XetFileInfo

            group = session.new_download_stream_group(
                token_refresh_url=xet.refresh_route, token_refresh_headers=self._headers
            )
            for piece in group.download_stream(XetFileInfo(xet.file_hash, self.nbytes), start=start):
                arriving.put(piece)
            arriving.put(EOFError())
        except BaseException as error:  # a panic of native code is no Exception
            arriving.put(error)

    def _get(self, file: BinaryIO, bar: Any) -> None:
        """Fetch what is missing by plain HTTP."""
        from huggingface_hub import constants, hf_raise_for_status
        from huggingface_hub.utils import http_stream_backoff  # type: ignore[attr-defined]

        had = file.tell()
        with http_stream_backoff(
            "GET",
            self._url,
            headers=self._headers | ({"Range": f"bytes={had}-"} if had else {}),
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            retry_on_exceptions=(),
            retry_on_status_codes=(408, 429),  # it waits as long as the Hub asks for
        ) as response:
            hf_raise_for_status(response)
            is_rest = response.status_code == 206  # not from a server without ranges
            # What is here outlives an answer that is not the file, such as the page of a firewall.
            if (length := response.headers.get("Content-Length")) and "Content-Encoding" not in response.headers:
                self._require_size(int(length) + (had if is_rest else 0))
            if had and not is_rest:
                file.seek(0)
                file.truncate()
                bar.update(-had)
            for piece in response.iter_bytes():
                file.write(piece)
                bar.update(len(piece))
        self._require_size(file.tell())

    def _require_size(self, nbytes: int) -> None:
        if nbytes != self.nbytes:
            raise OSError(f"`{self.name}` comes with {nbytes} bytes in place of {self.nbytes}")
