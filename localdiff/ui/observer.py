"""The observer interface, which displays, recorders and summaries share, and what some of them ask of a tokenizer."""

from __future__ import annotations

from typing import Protocol

from localdiff.events import Event


class Observer(Protocol):
    """Something that observes a generation and never changes it."""

    def on_event(self, event: Event) -> None:
        """Take the next event, in the order in which they happened."""


class Pieces(Protocol):
    """The texts of a model's ids."""

    def piece(self, id: int, /) -> str:
        """Text of one id."""

    def is_special(self, id: int, /) -> bool:
        """Whether it is a control token."""
