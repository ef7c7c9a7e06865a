"""The mixture of experts: which experts a row goes to, and what they compute.

Knows rows; knows nothing about attention or which rows are encoder or canvas rows. `Experts` is swappable: any
`RoutedExperts` takes its place without any change here.
Shape letters: N rows, D width, E experts, k experts per row, I expert width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from localdiff.model.config import ModelConfig
from localdiff.model.layer_ops import UsesLayerOps
from quant.modules.experts import AdapterHook, RoutedExperts, sum_experts
from quant.modules.linear import Linear


class Router(UsesLayerOps):
    """Chooses k experts per row, from the residual stream under its own norm and scale, not from the experts' input.

    `LayerOps.add_attention_and_norm` computes its input.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.proj: nn.Module = Linear(config.hidden_size, config.num_experts)
        self.scale = nn.Parameter(torch.ones(config.hidden_size))
        self.per_expert_scale = nn.Parameter(torch.ones(config.num_experts))
        self.top_k = config.top_k_experts

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Routes normed and scaled rows [N, D] to experts.

        Returns:
            Expert ids [N, k], and routing weights [N, k] in fp32, renormalised over the chosen k, times the per-expert
            scale.
        """
        return self.layer_ops.route(self.layer_ops.scores(self.proj, x), self.per_expert_scale, self.top_k)


class Experts(RoutedExperts):
    """All experts of a layer in two fused tensors: gate and up rows stacked [E, 2I, D], and down [E, D, I]."""

    takes_hook = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, width, inner = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, inner))

    def forward(
        self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor, hook: AdapterHook | None = None
    ) -> Tensor:
        """See `RoutedExperts`."""
        # Unbound once: each separate indexing would cost training a gradient as large as all experts.
        gate_up, down = self.gate_up_proj.unbind(), self.down_proj.unbind()
        return sum_experts(
            x,
            expert_ids,
            routing_weights,
            gate_up.__getitem__,
            down.__getitem__,
            num_experts=len(gate_up),
            hook=hook,
        )
