"""The small modules every layer is made of: norm and gated MLP.

Knows rows of activations; knows nothing about attention, experts or the cache.
Shape letters: D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from localdiff.model.layer_ops import UsesLayerOps
from localdiff.model.projections import Projections, last_projection
from quant.modules.linear import Linear


class RMSNorm(UsesLayerOps):
    """`rms_norm` with a learned weight [D]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normed rows [..., D], in the dtype of `x`."""
        return self.layer_ops.norm(x, self.weight, self.eps)


class GatedMLP(Projections):
    """`down(gelu(gate(x)) * up(x))`: the dense MLP of a layer and the body of self-conditioning."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj: nn.Module = Linear(hidden_size, intermediate_size)
        self.up_proj: nn.Module = Linear(hidden_size, intermediate_size)
        self.down_proj: nn.Module = Linear(intermediate_size, hidden_size)

    def projections(self) -> tuple[nn.Module, ...]:
        return self.gate_proj, self.up_proj

    def forward(self, x: Tensor, *, in_parts: bool = False) -> Tensor:
        """Rows [..., D] to rows [..., D]; see `last_projection` for `in_parts`."""
        return last_projection(self.down_proj, self._inner(x), in_parts=in_parts)

    def _inner(self, x: Tensor) -> Tensor:
        fused = self.fused()
        inner = None if fused is None else fused.gated(x)
        if inner is not None:
            return inner
        gate, up = self.project(x)
        return self.layer_ops.gelu_mul(gate, up)
