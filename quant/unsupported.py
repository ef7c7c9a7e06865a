"""Why a fast path does not run on a machine, and what may help. Knows the words only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A reason in a few words, and a remedy, which is empty where only another machine would help."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return self.reason
