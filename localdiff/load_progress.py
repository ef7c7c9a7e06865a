"""What is reported while a model loads, which takes half a minute for large ones.

Knows the stages; knows nothing about what happens in them, or who listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

LoadStage: TypeAlias = Literal["download", "weights", "modules", "kernels"]
"""Files are fetched, weights put in their places, modules get faster forms on a CPU, and kernels are tried on a GPU, in
this order; stages that a model or a device does not need are left out."""

LoadProgress: TypeAlias = Callable[[LoadStage, float], None]
"""Called with a stage and the share of it that is done, from 0 to 1."""


def tell_nobody(_stage: LoadStage, _share: float) -> None:
    """A `LoadProgress` for loading in silence."""
