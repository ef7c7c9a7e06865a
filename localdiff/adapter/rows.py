"""Tells modules that are only given the rows of a pass which of them are canvas rows.

Knows that a layer is called with `is_canvas` after its rows, and nothing else of it.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn


class RowKinds:
    """The row kinds of the layer that is running. A pass runs in one thread, so each thread has its own."""

    def __init__(self) -> None:
        self._now = threading.local()

    def watch(self, layer: nn.Module) -> None:
        """Hooks a layer to record them before each of its passes."""
        layer.register_forward_pre_hook(self._before)

    def are_canvas(self, count: int, device: torch.device) -> Tensor:
        """Which of `count` rows are canvas rows, bool [count]; a batch's rows are ordered by sequence."""
        is_canvas: Tensor = self._now.is_canvas.to(device)
        return is_canvas if len(is_canvas) == count else is_canvas.repeat(count // len(is_canvas))

    def _before(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        del layer
        self._now.is_canvas = inputs[1]
