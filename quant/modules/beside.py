"""What may be added to the products of experts, from outside.

A fused module multiplies, gates and multiplies again; what is to be added to its products must come in between. Knows
the two places; does not know what is added.
Shape letters: M rows of one expert, D width, I expert width.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Beside(Protocol):
    """Terms beside the two products of an expert; None is nothing."""

    def gate_up(self, expert: int, x: Tensor, rows: Tensor) -> Tensor | None:
        """What is added to gate and up rows: [M, 2I] for the inputs `x` [M, D], which are `rows` [M] of the pass."""

    def down(self, expert: int, inner: Tensor, rows: Tensor) -> Tensor | None:
        """What is added to the outputs: [M, D] for the inner rows [M, I]."""
