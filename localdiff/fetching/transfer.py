"""Downloads of a repository's files into the Hub's cache, and their progress.

Knows names and bytes; draws nothing. Progress and notes are passed on by the thread that waits.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Mapping

from localdiff.checkpoint_files import CONFIG
from localdiff.hub.downloads import Downloads
from localdiff.hub.problems import another_commit, changed_meanwhile
from localdiff.hub.repository import Repository
from localdiff.load_progress import LoadProgress

_log = logging.getLogger(__name__)


def transfer(repository: Repository, sizes: Mapping[str, int], progress: LoadProgress) -> None:
    """Fetch files, in this order; finished ones are kept if it is interrupted.

    Args:
        sizes: their names, and how many bytes of each come over the network.
        progress: is told the share of all their bytes that is here.

    Raises:
        WeightsError: access to a file is refused, a file is damaged or of another commit, or the network failed.
        ResourceError: the disk is full.
    """
    tally = _Tally(sizes)

    def tell() -> None:
        progress("download", tally.share)
        for note in tally.notes():
            _log.warning("%s", note)

    with Downloads(repository, tally, hashed=True) as downloads:
        downloads.prefetch(sizes)
        for name in sizes:
            path = downloads.wait(name, meanwhile=tell)
            if path is not None and path.parent.name != repository.commit:
                # `config.json` is requested by the name of its branch, so that the cache knows the branch.
                by_branch = name == CONFIG and repository.revision != repository.commit
                raise changed_meanwhile(repository.name) if by_branch else another_commit(repository.name)
    tell()


class _Tally:
    """Counts the bytes that are here. See `hub.downloads.DownloadObserver`."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._done: dict[str, int] = {}
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()

    @property
    def share(self) -> float:
        with self._lock:
            total = sum(self._sizes.values())
            return sum(self._done.values()) / total if total else 1.0

    def notes(self) -> Iterable[str]:
        """What the Hub's client has reported since the last call."""
        while not self._notes.empty():
            yield self._notes.get()

    def on_bytes(self, name: str, done: int) -> None:
        with self._lock:
            self._done[name] = min(done, self._sizes[name])

    def on_fetched(self, name: str) -> None:
        self.on_bytes(name, self._sizes[name])

    def on_note(self, text: str) -> None:
        self._notes.put(text)
