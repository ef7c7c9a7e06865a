"""A process that fetches files of the Hub, one after the other: `python -m localdiff.hub.worker`.

    stdin   one JSON object per line: repository, revision, file, the directory it goes to (null: the Hub's cache),
            and the SHA-256 that it is checked for (null: none)
    stdout  one JSON object per line: `bytes` so far, a `note`, and at the end of a file its `path` or an `error`

A separate process, because the Hub's client cleans up after itself only when it is interrupted in a main thread: when
stdin is closed, or the parent process is gone, the client is interrupted as by Ctrl-C.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from localdiff.errors import LocaldiffError, WeightsError
from localdiff.hub.cache import delete, delete_abandoned
from localdiff.hub.problems import deleted, is_no_answer, is_reset, not_the_hub
from localdiff.hub.retries import FAILURES, with_retries
from quant.hashing import file_sha256

INTERVAL = 0.1
"""Seconds between two reports of bytes."""


OUTAGE_WAITS = {4: 5.0, 3: 10.0, 2: 20.0, 1: 40.0, 0: 80.0}
"""Tries that the client has left for the rest of a file → seconds before the next one, if nobody answered the last."""

MAX_RESETS = 5
"""Resets of a connection, one after the other, between which nothing came."""


class Reports:
    """The lines sent to the parent process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, **content: Any) -> None:
        """Write one line."""
        with self._lock:
            self._stream.write(json.dumps(content) + "\n")
            self._stream.flush()


class Notes(logging.Handler):
    """Forwards messages of the Hub's client and of this package to the user, such as that it tries again."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(logging.WARNING)
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        """Send the last line, which says what happens now."""
        if lines := record.getMessage().strip().splitlines():
            self._reports.send(note=lines[-1])


def progress_bar(reports: Reports) -> type:
    """A class that the Hub's client reports its bytes to, with the part of `tqdm`'s interface that it uses."""

    class Bar:
        def __init__(self, total: int | None = None, initial: int = 0, **_: Any) -> None:
            self.total, self.n = total, initial
            self._reported_at = 0.0
            # The client requests 10 MB before it reports any; until then at least the file's name is known.
            self._report()

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            self._report()

        def update(self, count: float = 1) -> None:
            """More bytes of the file are there; fewer, where the client starts over."""
            self.n += int(count)
            if time.monotonic() - self._reported_at >= INTERVAL:
                self._report()

        def update_transfer(self, count: float = 1) -> None:
            """Bytes on the wire, which are not those of the file."""

        def set_postfix_str(self, *_: Any, **__: Any) -> None:
            """The client's own wording of its rate."""

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            """The file is there, or the client gives up on it."""
            self._report()

        def _report(self) -> None:
            self._reported_at = time.monotonic()
            reports.send(bytes=self.n)

    return Bar


def main() -> None:
    """Fetch what stdin names until it is closed."""
    reports = Reports(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    # A job that a shell's script has started with `&` ignores Ctrl-C, and this process would with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _require_names()
    wait_out_outages()
    requests: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    try:
        for request in iter(requests.get, None):
            reports.send(**_fetch(json.loads(request), reports))
    except (KeyboardInterrupt, BrokenPipeError):
        # Nobody reads any more, so the interpreter must not flush its streams.
        os._exit(0)


def _require_names() -> None:
    """Have the client refuse a file whose hash or commit is a path, as the server says them: it would write there."""
    from huggingface_hub import HfFileMetadata, file_download

    ask = file_download.get_hf_file_metadata

    def asked(*arguments: Any, **options: Any) -> HfFileMetadata:
        said = ask(*arguments, **options)
        for name in (said.etag, said.commit_hash):
            if name is not None and (Path(name).name != name or not name.strip(".")):
                raise not_the_hub()
        return said

    file_download.get_hf_file_metadata = asked


def wait_out_outages() -> None:
    """Have the client wait for a line that is down, and go on where a connection was reset, as where it was closed.

    It would give up within seconds, and at once, and delete what it has of a file.
    """
    from huggingface_hub import file_download

    get = file_download.http_get

    def patient(url: str, temp_file: BinaryIO, **options: Any) -> None:
        # The client calls itself for the next try, while it handles the error of the last one.
        if (error := sys.exception()) is not None and is_no_answer(error):
            time.sleep(OUTAGE_WAITS.get(options.get("_nb_retries", -1), 0.0))
        resets = 0
        while True:
            had = temp_file.tell()
            try:
                return get(url, temp_file, **options)
            except Exception as error:
                resets = 1 if temp_file.tell() > had else resets + 1
                if not is_reset(error) or resets > MAX_RESETS:
                    raise
            time.sleep(1.0)
            options["resume_size"] = temp_file.tell()

    file_download.http_get = patient


def _listen(requests: queue.Queue[str | None]) -> None:
    for line in sys.stdin:
        requests.put(line)
    requests.put(None)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def _fetch(request: dict[str, Any], reports: Reports) -> dict[str, Any]:
    """Fetch one file; returns the final report about it."""
    from huggingface_hub import hf_hub_download

    for name in ("huggingface_hub", "localdiff"):
        logging.getLogger(name).handlers = [Notes(reports)]
    place = request["directory"]
    repository, revision = request["repository"], request["revision"]
    download = partial(
        hf_hub_download,
        repository,
        request["file"],
        revision=revision,
        local_dir=place,
        library_name="localdiff",
        tqdm_class=progress_bar(reports),
    )
    try:
        # Where the Hub is busy the client itself tries again; where it fails to hand out a file, it does not.
        path = with_retries(download, repository, revision, statuses=FAILURES, place=Path(place) if place else None)
        delete_abandoned(Path(path))
        if request["sha256"] is not None and file_sha256(Path(path)) != request["sha256"]:
            delete(Path(path))
            raise WeightsError(f"`{request['file']}` of `{repository}` is damaged", deleted(request["file"]))
    except LocaldiffError as error:
        worded = error
    except Exception as error:
        worded = LocaldiffError(f"unexpected {type(error).__name__} while fetching: {error}")
    else:
        return {"path": path}
    return {"error": [worded.message, worded.hint, worded.exit_code]}


if __name__ == "__main__":
    main()
