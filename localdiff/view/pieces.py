"""The texts of a model's ids, as whatever draws or records a run needs them.

Knows an interface that both a tokenizer and a trace have.
"""

from __future__ import annotations

from typing import Protocol


class Pieces(Protocol):
    """The texts of ids."""

    def piece(self, id: int, /) -> str:
        """Text of one id; `▁` counts as a space and `<0xNN>` as a byte."""

    def is_special(self, id: int, /) -> bool:
        """Whether it is a control token."""
