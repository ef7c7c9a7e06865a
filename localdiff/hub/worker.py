"""A process that fetches files of the Hub, one after the other: `python -m localdiff.hub.worker`.

    stdin   one JSON object per line: the attributes of a `LargeFile` but its `bar`; `sha256` is null for a small file
    stdout  one JSON object per line: `bytes` so far, a `note`, and at the end of a file its `path` or an `error`
    stderr  what is no more than of interest; `LOCALDIFF_DEBUG` shows it

A separate process, because only a process can be ended while the Hub's client waits for a connection. It ends at once
when stdin is closed, or the parent process is gone.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from localdiff.errors import LocaldiffError, without_password
from localdiff.hub.cache import delete, delete_abandoned
from localdiff.hub.endpoint import US
from localdiff.hub.large_file import LargeFile, damaged
from localdiff.hub.problems import not_the_hub
from localdiff.hub.retries import FAILURES, wait_out_outages, with_retries
from quant.hashing import file_sha256

_log = logging.getLogger(__name__)

INTERVAL = 0.1
"""Seconds between two reports of bytes."""

_ONE_TRY = re.compile(r"'.*' thrown while requesting |Retrying in ")
"""What the client says of each try; of a line that is down `wait_out_outages` tells, once for several of them."""


class Reports:
    """The lines sent to the parent process.

    Attributes:
        furthest: how much of the present file has been here; less may be, if a try begins it anew.
    """

    def __init__(self, stream: TextIO) -> None:
        self.furthest = 0
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, **content: Any) -> None:
        """Write one line."""
        with self._lock:
            self._stream.write(json.dumps(content) + "\n")
            self._stream.flush()


class Notes(logging.Handler):
    """Forwards messages of the Hub's client and of this package to the user, such as those about retries."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(logging.INFO)
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        """Send the last line, which says what happens now, if it is a warning of more than one try."""
        if not (lines := record.getMessage().strip().splitlines()):
            return
        text = without_password(lines[-1])
        if record.levelno >= logging.WARNING and not _ONE_TRY.match(text):
            self._reports.send(note=text)
        else:
            print(text, file=sys.stderr)


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
            """`count` more bytes of the file have arrived; negative if the client starts over."""
            self.n += int(count)
            reports.furthest = max(reports.furthest, self.n)
            if time.monotonic() - self._reported_at >= INTERVAL:
                self._report()

        def update_transfer(self, count: float = 1) -> None:
            """Ignores bytes on the wire, which are not those of the file."""

        def set_postfix_str(self, *_: Any, **__: Any) -> None:
            """Ignores the client's own text about its rate."""

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
    _require_names()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    with suppress(BrokenPipeError):  # nobody reads any more
        while True:
            reports.send(**_fetch(json.loads(requests.get()), reports))
    os._exit(0)  # the interpreter would flush its streams


def _require_names() -> None:
    """Make the client refuse a file for which the server gives a path as hash or commit: it would write there.

    The only function of the client that is replaced; one that has no such function, or another one, is used as it is.
    """
    from huggingface_hub import file_download

    ask = getattr(file_download, "get_hf_file_metadata", None)
    if ask is None:
        return

    def asked(*arguments: Any, **options: Any) -> Any:
        said = ask(*arguments, **options)
        for name in (getattr(said, "etag", None), getattr(said, "commit_hash", None)):
            if isinstance(name, str) and (Path(name).name != name or not name.strip(".")):
                raise not_the_hub()
        return said

    file_download.get_hf_file_metadata = asked


def _listen(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # whatever is in progress: the next process continues with what is here


def _fetch(request: dict[str, Any], reports: Reports) -> dict[str, Any]:
    """Fetch one file; returns the final report about it."""
    for name in ("huggingface_hub", "localdiff"):
        logging.getLogger(name).handlers = [Notes(reports)]
    logging.getLogger("localdiff").setLevel(logging.INFO)
    place, bar, reports.furthest = request["directory"], progress_bar(reports), 0
    try:
        # The client itself retries if the Hub is busy, but not if the Hub fails to hand out a file.
        path = with_retries(
            partial(wait_out_outages, partial(_download, request, bar), request["name"], lambda: reports.furthest),
            request["repository"],
            request["revision"],
            statuses=FAILURES,
            place=Path(place) if place else None,
        )
    except LocaldiffError as error:
        worded = error
    except Exception as error:
        worded = LocaldiffError(f"unexpected {type(error).__name__} while fetching: {without_password(str(error))}")
    else:
        return {"path": str(path)}
    return {"error": [worded.message, worded.hint, worded.exit_code]}


def _download(request: dict[str, Any], bar: type) -> Path:
    path: Path | None = None
    if request["sha256"] is not None:
        try:
            path = LargeFile(**request, bar=bar).fetch()
        except (ImportError, AttributeError, TypeError) as error:  # functions of the client that are not as they were
            _log.info("%r: `%s` is left to the Hub's client, which begins it anew", error, request["name"])
    path = path or _by_client(request, bar)
    delete_abandoned(path)
    return path


def _by_client(request: dict[str, Any], bar: type) -> Path:
    """Fetch a file through the one function of the client that everybody uses."""
    from huggingface_hub import hf_hub_download

    name, revision, directory = request["name"], request["revision"], request["directory"]
    path = Path(
        hf_hub_download(request["repository"], name, revision=revision, local_dir=directory, **US, tqdm_class=bar)
    )
    if request["sha256"] and request["hashed"] and file_sha256(path) != request["sha256"]:
        delete(path)
        raise damaged(request["repository"], name)
    return path


if __name__ == "__main__":
    main()
