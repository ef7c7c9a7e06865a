"""What a training run says about itself: a line of JSON for every update, and a line of text for every twentieth.

Knows numbers; knows no training.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import TextIO

_SHOWN_EVERY = 20


class Journal:
    """Appends to a file for as long as it is open."""

    def __init__(self, path: Path, updates: int) -> None:
        self._path = path
        self._updates = updates
        self._started = time.perf_counter()
        self._file: TextIO | None = None

    def __enter__(self) -> Journal:
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def report(self, update: int, loss: float, accuracy: float) -> None:
        """Update number `update`, counted from 1, is done. Seconds are those since this run began."""
        assert self._file is not None, "a journal is written while it is open"
        seconds = time.perf_counter() - self._started
        line = {"update": update, "loss": round(loss, 4), "accuracy": round(accuracy, 4), "seconds": round(seconds, 1)}
        self._file.write(json.dumps(line) + "\n")
        if update % _SHOWN_EVERY == 0:
            self._file.flush()
            print(f"{update}/{self._updates}  loss {loss:.3f}  right {accuracy:.1%}  {seconds:.0f} s", flush=True)
