"""Progress display of a job: a line for each phase, and one for each file being fetched.

Knows the events of a job and of downloads; knows nothing about bars.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from localdiff.ui.progress import SPACE, ProgressDisplay
from quant.jobs.events import (
    BytesDone,
    FileChecked,
    JobEvent,
    JobStarted,
    ShardStarted,
    ShardWritten,
    TensorDone,
)

FETCH, QUANTIZE, CHECK = "fetch", "quantize", "check"


class Display:
    """Observer of a job, and of the downloads that feed it.

    Args:
        to_fetch: files that will be fetched, and the bytes of each.
        to_check: files that a check of the output reads, and their sizes; files too small to matter are left out.
    """

    def __init__(self, progress: ProgressDisplay, to_fetch: Mapping[str, int], to_check: Mapping[str, int]) -> None:
        self._progress, self._to_fetch, self._to_check = progress, dict(to_fetch), dict(to_check)
        self._fetched: dict[str, int] = {}
        self._lock = threading.Lock()
        self._done = self._shard = self._size = self._checked = 0
        self._worst = 0.0
        if to_fetch:
            progress.start(FETCH, sum(to_fetch.values()), whole=True)

    def on_bytes(self, name: str, done: int) -> None:
        """See `hub.downloads.DownloadObserver`."""
        if name not in self._to_fetch:
            return
        with self._lock:
            self._fetched[name] = min(done, self._to_fetch[name])
            total = sum(self._fetched.values())
        self._progress.start(name, self._to_fetch[name])
        self._progress.show(name, done)
        self._progress.show(FETCH, total)

    def on_fetched(self, name: str) -> None:
        """See `hub.downloads.DownloadObserver`."""
        if name in self._to_fetch:
            self.on_bytes(name, self._to_fetch[name])
            self._progress.end(name)

    def on_note(self, text: str) -> None:
        """See `hub.downloads.DownloadObserver`."""
        self._progress.note(f"note: {text}")

    def on_event(self, event: JobEvent) -> None:
        """Show an event."""
        match event:
            case JobStarted():
                self._progress.end(CHECK)
                self._checked = 0
                if event.source_bytes:
                    self._progress.start(QUANTIZE, event.source_bytes, whole=True)
            case ShardStarted():
                self._shard, self._size = 0, event.source_bytes
            case BytesDone():
                self._shard += event.source_bytes
                self._progress.show(QUANTIZE, self._done + self._shard, self._detail(event.name))
            case TensorDone():
                self._worst = max(self._worst, event.error)
            case ShardWritten():
                # Bytes that no tensor needed were read too.
                self._done += self._size
                self._shard = 0
                self._progress.show(QUANTIZE, self._done)
            case FileChecked():
                self._progress.end(QUANTIZE)
                self._progress.start(CHECK, sum(self._to_check.values()), whole=True)
                self._checked += self._to_check.get(event.file, 0)
                self._progress.show(CHECK, self._checked, event.file)

    def _detail(self, name: str) -> str:
        short = name.removeprefix("model.decoder.").removesuffix(".weight")
        return f"worst error {100 * self._worst:.1f} %{SPACE}{short}" if self._worst else short
