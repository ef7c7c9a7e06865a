"""A hook that adds terms, such as an adapter's, to the projections of experts.

A fused module multiplies, gates and multiplies again; terms for its projections must be added in between. Knows the two
places; does not know what is added.
Shape letters: M rows of one expert, D width, I expert width.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class AdapterHook(Protocol):
    """Terms added to the two projections of an expert; None adds nothing."""

    def gate_up(self, expert: int, x: Tensor, rows: Tensor) -> Tensor | None:
        """What is added to gate and up rows: [M, 2I] for the inputs `x` [M, D], which are `rows` [M] of the pass."""

    def down(self, expert: int, inner: Tensor, rows: Tensor) -> Tensor | None:
        """What is added to the outputs: [M, D] for the inner rows [M, I]."""
