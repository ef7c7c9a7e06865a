"""One transformer layer, shared by encoder and canvas rows.

Knows the order of norms, the two feed-forward branches and the layer scalars; does not know which rows see which.
Shape letters: N rows, D width, d head size, k experts per row.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from localdiff.model.attention import Attend, Attention
from localdiff.model.config import LayerConfig, ModelConfig
from localdiff.model.layer_ops import LayerOps, UsesLayerOps
from localdiff.model.layers import GatedMLP, RMSNorm
from localdiff.model.moe import Experts, Router
from quant.modules.experts import RoutedExperts


class Layer(UsesLayerOps):
    """Attention, then a dense MLP and a mixture of experts side by side over the same residual.

    Attributes:
        layer_scalar: [1] factor on the residual stream of canvas rows.
        encoder_layer_scalar: [1] the same for encoder rows; all other weights are shared.
        present: returns a context in which the layer's weights are on the device where it computes; whatever computes
            with them outside of `forward` runs in it.
    """

    present: Callable[[], AbstractContextManager[None]] = nullcontext

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(width, eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.pre_feedforward_layernorm = RMSNorm(width, eps)
        self.mlp = GatedMLP(width, config.intermediate_size)
        self.post_feedforward_layernorm_1 = RMSNorm(width, eps)
        self.router = Router(config)
        self.pre_feedforward_layernorm_2 = RMSNorm(width, eps)
        self.experts: RoutedExperts = Experts(config)
        self.post_feedforward_layernorm_2 = RMSNorm(width, eps)
        self.post_feedforward_layernorm = RMSNorm(width, eps)
        self.layer_scalar = nn.Parameter(torch.ones(1))
        self.encoder_layer_scalar = nn.Parameter(torch.ones(1))
        self.eps = eps

    def forward(self, x: Tensor, is_canvas: Tensor, rotary: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """Runs rows [..., N, D] through the layer.

        Args:
            is_canvas: bool [N], which rows take the canvas scalar.
            rotary: cos, sin of this kind of layer, [N, d] each.
        """
        in_parts = self.layer_ops.sums_parts
        y = self.self_attn(self.input_layernorm(x), rotary, attend, in_parts=in_parts)
        x, dense_in, expert_in, router_in = self.add_attention(x, y, self.layer_ops)
        dense_out = self.mlp(dense_in, in_parts=in_parts)
        expert_ids, routing_weights = self.router(router_in.flatten(0, -2))
        expert_out, left_weights = self._experts(expert_in, expert_ids, routing_weights)
        return self.merge_branches(x, dense_out, expert_out, left_weights, is_canvas, self.layer_ops)

    def add_attention(self, x: Tensor, y: Tensor, ops: LayerOps) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`LayerOps.add_attention_and_norm` with this layer's weights."""
        return ops.add_attention_and_norm(
            x,
            y,
            attention_weight=self.post_attention_layernorm.weight,
            dense_weight=self.pre_feedforward_layernorm.weight,
            expert_weight=self.pre_feedforward_layernorm_2.weight,
            router_scale=self.router.scale,
            eps=self.eps,
        )

    def merge_branches(
        self,
        x: Tensor,
        dense_out: Tensor,
        expert_out: Tensor,
        routing_weights: Tensor | None,
        is_canvas: Tensor,
        ops: LayerOps,
    ) -> Tensor:
        """`LayerOps.merge_branches` with this layer's weights."""
        return ops.merge_branches(
            x,
            dense_out,
            expert_out,
            routing_weights,
            dense_weight=self.post_feedforward_layernorm_1.weight,
            expert_weight=self.post_feedforward_layernorm_2.weight,
            both_weight=self.post_feedforward_layernorm.weight,
            is_canvas=is_canvas,
            canvas_scalar=self.layer_scalar,
            encoder_scalar=self.encoder_layer_scalar,
            eps=self.eps,
        )

    def _experts(self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """Outputs of the experts for rows [..., N, D], as `merge_branches` takes them.

        Returns:
            Their sums [..., N, D] and None; or, if the experts can leave summing to `merge_branches` and that does it,
            the outputs [N, k, D] of the single experts and the weights [N, k] to sum them with.
        """
        if self.layer_ops.sums_experts and self.experts.can_leave_sum:
            return self.experts(x, expert_ids, routing_weights, summed=False), routing_weights
        return self.experts(x.flatten(0, -2), expert_ids, routing_weights).view(x.shape), None
