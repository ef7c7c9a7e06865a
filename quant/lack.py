"""What keeps a fast path from running on a machine, and what may help. Knows the words only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lack:
    """A reason in a few words, and a remedy; an empty one where the machine is what is missing."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return self.reason
