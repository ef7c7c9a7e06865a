"""Background downloads of a repository's files, a few at a time.

Knows processes that fetch (`localdiff.hub.worker`) and the state of every file; knows nothing about what the files are
for. What has arrived is kept, in the Hub's cache or at its destination: an unfinished file continues from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, Protocol, Self

from localdiff.checkpoint_files import CONFIG
from localdiff.config import is_set
from localdiff.errors import LocaldiffError, ResourceError, UsageError, WeightsError
from localdiff.hub.large_file import XET_BYTES, XET_LIMITS, xet_remedy
from localdiff.hub.problems import UnreachableError
from localdiff.hub.repository import Repository
from localdiff.sizes import shown_size

WORKERS = 2
"""Files fetched at a time: one arrives while another is hashed."""
_STOP_TIMEOUT = 5.0
_POLL = 0.1


class DownloadObserver(Protocol):
    """Observes downloads; called from threads other than the one that waits for them."""

    def on_bytes(self, name: str, done: int) -> None:
        """`done` bytes of a file have arrived, not counting what was here; fewer than before if it started over."""

    def on_fetched(self, name: str) -> None:
        """A file is complete."""

    def on_note(self, text: str) -> None:
        """The Hub's client reports something, such as a retry."""


class Downloads:
    """Fetches files of one repository; closing it abandons what is unfinished.

    Args:
        directory: where files go; None for the Hub's cache.
        workers: files at a time.
        hashed: whether what arrives is compared with the hash that the Hub publishes; no need if the caller does that.
    """

    def __init__(
        self,
        repository: Repository,
        observer: DownloadObserver,
        *,
        directory: Path | None = None,
        workers: int = WORKERS,
        hashed: bool = False,
    ) -> None:
        self._repository, self._observer, self._directory = repository, observer, directory
        self._hashed = hashed
        self._fetches: dict[str, futures.Future[Path]] = {}
        self._queue: deque[str] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._processes: list[subprocess.Popen[str]] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            processes = list(self._processes)
        for process in processes:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join(_STOP_TIMEOUT)

    def prefetch(self, names: Iterable[str]) -> None:
        """Request files that will be needed, in this order."""
        with self._changed:
            for name in names:
                if name not in self._fetches:
                    self._fetches[name] = futures.Future()
                    self._queue.append(name)
            self._changed.notify_all()

    def wait(
        self, name: str, stopped: Callable[[], bool] = lambda: False, *, meanwhile: Callable[[], None] = lambda: None
    ) -> Path | None:
        """Wait for a file, requesting it before all others if it was not requested yet.

        Args:
            stopped: called from time to time; True ends the wait.
            meanwhile: called as often.

        Returns:
            Where it is; None if `stopped` returned True before it arrived.

        Raises:
            WeightsError: access to it is refused, or the network failed.
            ResourceError: the disk is full.
        """
        with self._changed:
            if name not in self._fetches:
                self._fetches[name] = futures.Future()
                self._queue.appendleft(name)
                self._changed.notify_all()
        fetch = self._fetches[name]
        while not futures.wait([fetch], _POLL).done:
            meanwhile()
            if stopped():
                return None
        return fetch.result()

    def _work(self) -> None:
        """Pass one file after the other to one process."""
        process: subprocess.Popen[str] | None = None
        while (name := self._next()) is not None:
            fetch = self._fetches[name]
            try:
                if process is None or process.poll() is not None:
                    process = self._start()
                path = self._fetch(process, name)
                self._observer.on_fetched(name)
                fetch.set_result(path)
            except LocaldiffError as error:
                fetch.set_exception(error)
            except Exception as error:  # whatever the error, somebody waits for this file
                fetch.set_exception(LocaldiffError(f"`{name}` could not be fetched: {error!r}"))

    def _next(self) -> str | None:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            return None if self._closed else self._queue.popleft()

    def _start(self) -> subprocess.Popen[str]:
        with self._changed:
            if self._closed:
                raise _ended_early()
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "localdiff.hub.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if is_set("LOCALDIFF_DEBUG") else subprocess.DEVNULL,
                encoding="utf-8",
                env=worker_environment(),
                # Ctrl-C is for this process, which decides what happens to the worker.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
            )
            self._processes.append(process)
        return process

    def _fetch(self, process: subprocess.Popen[str], name: str) -> Path:
        assert process.stdin is not None and process.stdout is not None
        file = self._repository.files[name]
        request = {
            "repository": self._repository.name,
            "name": name,
            # Requested by its branch once, so that the cache knows offline which commit the branch is at.
            "revision": self._repository.revision if name == CONFIG else self._repository.commit,
            "directory": None if self._directory is None else str(self._directory),
            "sha256": file.sha256,
            "nbytes": file.nbytes,
            "hashed": self._hashed,
        }
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        was_here = None
        for line in process.stdout:
            report: dict[str, Any] = json.loads(line)
            if "bytes" in report:
                was_here = report["bytes"] if was_here is None else was_here
                self._observer.on_bytes(name, max(0, report["bytes"] - was_here))
            elif "note" in report:
                self._observer.on_note(report["note"])
            elif "path" in report:
                return Path(report["path"])
            else:
                raise _error(*report["error"])
        process.wait()
        raise _ended_early()


def worker_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of a process that fetches; the user's own limits of `hf_xet` stay in force."""
    limits = {} if is_set("HF_XET_HIGH_PERFORMANCE", env) else XET_LIMITS
    path = os.pathsep.join(path for path in sys.path if path)
    return {**limits, **env, "PYTHONPATH": path, "HF_HUB_DISABLE_TELEMETRY": "1"}


def fetching_bytes(workers: int) -> int:
    """Memory that processes take which fetch large files; through plain HTTP, next to none."""
    return workers * XET_BYTES if workers and xet_remedy() is None else 0


def require_transferable(repository: Repository, names: Iterable[str]) -> None:
    """Refuse files that are too large for plain HTTP, if the package for the other protocol is missing.

    Raises:
        WeightsError: there is such a file.
    """
    from huggingface_hub import constants

    large = [name for name in names if repository.files[name].nbytes > constants.MAX_HTTP_DOWNLOAD_SIZE]
    if large and (remedy := xet_remedy()) is not None:
        raise WeightsError(
            f"`{large[0]}` of `{repository.name}` is too large to be downloaded without the package `hf-xet`: it has "
            f"{shown_size(repository.files[large[0]].nbytes)}",
            remedy,
        )


def _error(message: str, hint: str | None, code: int) -> LocaldiffError:
    kinds = {kind.exit_code: kind for kind in (UsageError, WeightsError, ResourceError)}
    return kinds.get(code, LocaldiffError)(message, hint)


def _ended_early() -> LocaldiffError:
    return UnreachableError("the download process ended early", "run the same command again to continue")
