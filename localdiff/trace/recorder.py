"""The trace recorder, an observer that writes a trace during a run.

Knows which lines a trace has and in which order; knows nothing about paths or modes. Every line is flushed before the
run continues, so that a killed run leaves everything up to its last step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import BinaryIO

from localdiff.events import DenoiseStep, Event, RunFinished, RunStarted
from localdiff.trace.header import Header
from localdiff.trace.lines import Earlier, encode_event
from localdiff.view.pieces import Pieces


class Recorder:
    """Observer that writes a header, every event in full, the text of ids on first occurrence, and a footer.

    Args:
        file: an empty file for the bytes.
        header_of: makes the header, once the run has started and its seed is known.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        header_of: Callable[[RunStarted], Header],
        pieces: Pieces,
    ) -> None:
        self._file = file
        self._header_of = header_of
        self._pieces = pieces
        self._earlier = Earlier()
        self._written_ids: set[int] = set()
        self._hash = hashlib.sha256()
        self._lines = 0

    def on_event(self, event: Event) -> None:
        """Write the event, after the lines that it needs; errors of the file propagate."""
        if isinstance(event, RunStarted):
            header = self._header_of(event)
            self._earlier.record_top_k = header.record_top_k
            self._write(header.to_object())
        if isinstance(event, DenoiseStep):
            self._write_pieces(event)
        self._write(encode_event(event, self._earlier))
        self._earlier.follow(event)
        if isinstance(event, RunFinished):
            self._write({"sha256": self._hash.hexdigest(), "lines": self._lines})

    def _write_pieces(self, event: DenoiseStep) -> None:
        new = sorted(set(event.argmax_ids).union(*event.top_ids) - self._written_ids)
        if new:
            special = [token for token in new if self._pieces.is_special(token)]
            self._write({"pieces": {str(token): self._pieces.piece(token) for token in new}, "special": special})
            self._written_ids.update(new)

    def _write(self, line: Mapping[str, object]) -> None:
        text = json.dumps(line, default=asdict, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Only a broken tokenizer has a piece with a lone surrogate; that is not worth losing a run.
        data = f"{text}\n".encode("utf-8", "replace")
        self._file.write(data)
        self._file.flush()
        self._hash.update(data)
        self._lines += 1
