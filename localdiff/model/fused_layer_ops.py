"""The layer ops fused, one Triton launch each, for a model on a GPU.

Knows which weights of a layer a layer op takes; batches of sequences, as in training, take the plain path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from quant.cuda.experts import CudaExperts

from ..kernels import layer_ops as kernels
from .layer_ops import LayerOps

if TYPE_CHECKING:
    from .attention import Attention
    from .block import Layer
    from .moe import Router


class FusedLayerOps(LayerOps):
    """One launch each, rounding where the plain path rounds."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`rms_norm` of rows [..., D]."""
        return kernels.norm(x, weight, eps)

    def qkv_norm_rope(
        self, attention: Attention, q: Tensor, k: Tensor, v: Tensor | None, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `LayerOps.qkv_norm_rope`, of one sequence."""
        if q.dim() > 3:
            return super().qkv_norm_rope(attention, q, k, v, rotary)
        return kernels.qkv_norm_rope(q, k, v, attention.q_norm.weight, attention.k_norm.weight, rotary, attention.eps)

    def add_attention_and_norm(self, layer: Layer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `LayerOps.add_attention_and_norm`, of one sequence."""
        if x.dim() > 2:
            return super().add_attention_and_norm(layer, x, y)
        return kernels.add_attention_and_norm(
            x,
            y,
            attention_weight=layer.post_attention_layernorm.weight,
            dense_weight=layer.pre_feedforward_layernorm.weight,
            expert_weight=layer.pre_feedforward_layernorm_2.weight,
            router_scale=layer.router.scale,
            eps=layer.eps,
        )

    def gelu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        """`gelu(gate) * up`, [..., I]."""
        return kernels.gelu_mul(gate, up)

    def route(self, router: Router, scores: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerOps.route`; of experts with the same score, the first."""
        return kernels.route(scores, router.per_expert_scale, router.top_k)

    def experts(
        self, layer: Layer, x: Tensor, expert_ids: Tensor, routing_weights: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """As `LayerOps.experts`; the outputs of grouped experts are summed in `merge_branches`."""
        if x.dim() > 2 or not isinstance(layer.experts, CudaExperts):
            return super().experts(layer, x, expert_ids, routing_weights)
        return layer.experts(x, expert_ids, routing_weights, summed=False), routing_weights

    def merge_branches(
        self,
        layer: Layer,
        x: Tensor,
        dense_out: Tensor,
        expert_out: Tensor,
        routing_weights: Tensor | None,
        is_canvas: Tensor,
    ) -> Tensor:
        """As `LayerOps.merge_branches`, of one sequence."""
        if x.dim() > 2:
            return super().merge_branches(layer, x, dense_out, expert_out, routing_weights, is_canvas)
        return kernels.merge_branches(
            x,
            dense_out,
            expert_out,
            routing_weights,
            dense_weight=layer.post_feedforward_layernorm_1.weight,
            expert_weight=layer.post_feedforward_layernorm_2.weight,
            both_weight=layer.post_feedforward_layernorm.weight,
            is_canvas=is_canvas,
            canvas_scalar=layer.layer_scalar,
            encoder_scalar=layer.encoder_layer_scalar,
            eps=layer.eps,
        )
