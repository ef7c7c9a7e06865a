"""The one thing a display, a recorder and a summary have in common."""

from __future__ import annotations

from typing import Protocol

from localdiff.events import Event


class Observer(Protocol):
    """Something that looks at a generation and never changes it."""

    def on_event(self, event: Event) -> None:
        """See the next event; they come in the order in which they happened."""
