"""Every event as a line of JSON, as it happens.

Knows how an event is written; `docs/events.md` is the schema in words. Knows nothing about who reads it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TextIO

from localdiff.events import SCHEMA_VERSION, Event, object_of


class JsonLines:
    """Observer that writes one object per line and flushes each, so that a reader can follow a run.

    Args:
        escaped: write ASCII only, for example for a terminal, which the model's text must not control.
    """

    def __init__(self, file: TextIO, *, escaped: bool = False) -> None:
        self._file = file
        self._escaped = escaped

    def on_event(self, event: Event) -> None:
        """Write the event."""
        self._file.write(line(event, escaped=self._escaped) + "\n")
        self._file.flush()


def line(event: Event, *, escaped: bool = False) -> str:
    """The event as JSON on one line: `schema`, `event`, then the fields under their own names."""
    fields = {"schema": SCHEMA_VERSION, **object_of(event)}
    return json.dumps(fields, default=asdict, ensure_ascii=escaped, allow_nan=False, separators=(",", ":"))
