"""The observer interface, which displays, recorders and summaries share."""

from __future__ import annotations

from typing import Protocol

from localdiff.events import Event


class Observer(Protocol):
    """Something that observes a generation and never changes it."""

    def on_event(self, event: Event) -> None:
        """Take the next event, in the order in which they happened."""
