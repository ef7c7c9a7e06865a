"""Fetches weight files for a job: from a directory, or from the Hub while the job works on the previous file.

Knows when a file is fetched and when it may be deleted: only what this run has fetched for itself, and only where
nobody else would look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localdiff.checkpoint_files import CONFIG
from localdiff.checkpoints import weight_hashes
from localdiff.checkpoints.weight_hashes import FileState, file_state
from localdiff.errors import WeightsError
from localdiff.hub.cache import delete, delete_hint
from localdiff.hub.downloads import Downloads
from localdiff.hub.problems import changed_meanwhile, deleted
from localdiff.quantizing.origin import Origin
from quant.errors import SourceError
from quant.files.source import INDEX_FILE, SourceFile, SourceStoppedError
from quant.hashing import file_sha256


class WeightFetcher:
    """The weight files of an origin.

    Args:
        origin: the checkpoint whose files they are.
        downloads: fetches them; None where all of them are here.
        scratch: folder of files that are deleted once read; None where they go into the Hub's cache.
        stopped: whether waiting for a file should end.
    """

    def __init__(
        self, origin: Origin, downloads: Downloads | None, *, scratch: Path | None, stopped: Callable[[], bool]
    ) -> None:
        self._origin, self._downloads, self._scratch, self._stopped = origin, downloads, scratch, stopped
        self._unread: tuple[str, ...] = ()
        self._states: dict[str, FileState] = {}

    def begin(self, names: Iterable[str]) -> None:
        """Start fetching files ahead, unless each is to be deleted before the next one arrives."""
        if self._scratch is not None:
            # Left by the client, for a file without a published hash, when it was killed: it never resumes these.
            for path in (self._scratch / ".cache").rglob("*.incomplete"):
                path.unlink()
        elif self._downloads is not None and self._origin.repository is not None:
            files = self._origin.repository.files
            small = (CONFIG, INDEX_FILE, *self._origin.small_files)
            absent = {name for name, file in files.items() if file.local_path is None}
            self._unread = tuple(name for name in small[:2] if name in absent)
            self._downloads.prefetch(name for name in (*small, *names) if name in absent)

    @contextmanager
    def open(self, file: SourceFile) -> Iterator[Path]:
        """The path of a weight file, until the block ends.

        Raises:
            SourceStoppedError: it was not there yet when waiting ended.
            SourceError: what was read in the block is damaged; the hint names the file to delete.
        """
        here = self._origin.local_path(file)
        path = here or self._fetch(file.name)
        if self._origin.directory is not None:
            with suppress(OSError):  # reading it will report the error
                self._states[file.name] = file_state(path)
        try:
            yield path
        except SourceError as error:
            if self._origin.repository is None or not _differs(file, path):
                raise
            if here is None:
                delete(path)
            raise SourceError(error.message, delete_hint(path) if here else deleted(file.name)) from error
        finally:
            if here is None and self._scratch is not None:
                path.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """The content of a file other than weights; it stays in the Hub's cache unless that is to be left alone.

        Raises:
            SourceStoppedError: it was not there yet when waiting ended.
            WeightsError: access to it is refused, it is damaged, or its branch is at another commit by now.
        """
        repository = self._origin.repository
        if repository is None or self._scratch is not None or repository.files[name].local_path:
            return self._origin.read(name)
        path = self._fetch(name)
        content = path.read_bytes()
        if repository.files[name].matches(content):
            return content
        if path.parent.name != repository.commit:  # `config.json` is fetched by the name of the branch
            raise changed_meanwhile(repository.name)
        delete(path)
        raise WeightsError(f"`{name}` of `{repository.name}` is damaged", deleted(name))

    def record(self, name: str, sha256: str) -> None:
        """Record the hash that was found for a file of a directory, in the state in which it was opened."""
        if self._origin.directory is not None and name in self._states:
            weight_hashes.record(self._origin.directory, {name: (self._states[name], sha256)})

    def _fetch(self, name: str) -> Path:
        if self._downloads is None:
            raise AssertionError(f"{name} is neither here nor fetched")
        # This job has read these without keeping them; a later one finds them in the cache only if they are awaited.
        paths = [self._downloads.wait(file, self._stopped) for file in (*self._unread, name)]
        if paths[-1] is None:
            raise SourceStoppedError
        return paths[-1]


def _differs(file: SourceFile, path: Path) -> bool:
    """Whether a file is not the published one; other errors are not fixed by fetching it again."""
    if not path.exists():
        return False
    return path.stat().st_size != file.nbytes or file.sha256 not in (None, file_sha256(path))
