"""Modules that add low-rank terms to what another module computes, and have its interface.

The other module stays as it is, plain, quantized or fast, and its weights with it. For linear layers the term is added
to the output; experts are fused, so theirs is passed in as a hook (`quant.modules.AdapterHook`). Both are only given
the rows of a pass; which of these are canvas rows, they learn from the layer that they are in.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from localdiff.adapter.lowrank import Terms
from quant.modules import RoutedExperts


class RowKinds:
    """The row kinds of the layer that is running. A pass runs in one thread, so each thread has its own."""

    def __init__(self) -> None:
        self._now = threading.local()

    def watch(self, layer: nn.Module) -> None:
        """Hooks a layer to record its row kinds before each of its passes."""
        layer.register_forward_pre_hook(self._before)

    def are_canvas(self, count: int, device: torch.device) -> Tensor:
        """Which of `count` rows are canvas rows, bool [count]; a batch's rows are ordered by sequence."""
        is_canvas: Tensor = self._now.is_canvas.to(device)
        return is_canvas if len(is_canvas) == count else is_canvas.repeat(count // len(is_canvas))

    def _before(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        del layer
        self._now.is_canvas = inputs[1]


class AdaptedLinear(nn.Module):
    """`base(x)` plus the term of each row."""

    def __init__(self, base: nn.Module, terms: Terms, kinds: RowKinds) -> None:
        super().__init__()
        self.base, self.terms = base, terms
        self._kinds = kinds

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` to `[..., out]`."""
        is_canvas = self._kinds.are_canvas(x.shape[-2], x.device) if self.terms.differ_by_kind else None
        out: Tensor = self.base(x) + self.terms(x, is_canvas)
        return out


class AdaptedExperts(RoutedExperts):
    """Experts with terms on the gate and up projections, on the down projections, or on both.

    Args:
        base: experts that take a hook.
    """

    def __init__(self, base: RoutedExperts, gate_up: Terms | None, down: Terms | None, kinds: RowKinds) -> None:
        super().__init__()
        self.base, self.gate_up, self.down = base, gate_up, down
        self._kinds = kinds

    def forward(self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor) -> Tensor:
        """See `RoutedExperts`."""
        differ = any(terms is not None and terms.differ_by_kind for terms in (self.gate_up, self.down))
        is_canvas = self._kinds.are_canvas(len(x), x.device) if differ else None
        out: Tensor = self.base(x, expert_ids, routing_weights, _ExpertHook(self.gate_up, self.down, is_canvas))
        return out


class _ExpertHook:
    """The `AdapterHook` of one pass."""

    def __init__(self, gate_up: Terms | None, down: Terms | None, is_canvas: Tensor | None) -> None:
        self._gate_up, self._down, self._is_canvas = gate_up, down, is_canvas

    def gate_up(self, expert: int, x: Tensor, rows: Tensor) -> Tensor | None:
        return self._term(self._gate_up, expert, x, rows)

    def down(self, expert: int, inner: Tensor, rows: Tensor) -> Tensor | None:
        return self._term(self._down, expert, inner, rows)

    def _term(self, terms: Terms | None, expert: int, x: Tensor, rows: Tensor) -> Tensor | None:
        if terms is None:
            return None
        term: Tensor = terms(x, None if self._is_canvas is None else self._is_canvas[rows], expert)
        return term
