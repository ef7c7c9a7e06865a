"""Logging of a training run: a line of JSON for every update, and a line of text for every twentieth.

Knows numbers; knows no training.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_SHOWN_EVERY = 20


@contextmanager
def journal(path: Path, updates: int) -> Iterator[Callable[[int, float, float], None]]:
    """Appends reports to a file: the number of a finished update, from 1, its loss and its accuracy.

    Seconds are those since the journal was opened.
    """
    started = time.perf_counter()
    with path.open("a", encoding="utf-8") as file:

        def report(update: int, loss: float, accuracy: float) -> None:
            seconds = time.perf_counter() - started
            line = {
                "update": update,
                "loss": round(loss, 4),
                "accuracy": round(accuracy, 4),
                "seconds": round(seconds, 1),
            }
            file.write(json.dumps(line) + "\n")
            if update % _SHOWN_EVERY == 0:
                file.flush()
                print(f"{update}/{updates}  loss {loss:.3f}  right {accuracy:.1%}  {seconds:.0f} s", flush=True)

        yield report
