"""The ops between a layer's GEMMs: norms, RoPE, residuals, gates, routing.

    [norm] ─► q, k, v ─► [qkv_norm_rope] ─► attention ─► o ─► [add_attention_and_norm] ─► dense_in, expert_in, router_in

    dense_in ──► gate, up ─► [gelu_mul] ─► down ──┐
    router_in ─► router ─► [route] ─┐             ├─► [merge_branches]
    expert_in ──────────────────────┴► [experts] ─┘

Knows the parts of a layer; knows nothing about projection weights or which rows see which. `LayerOps` is the plain
path, and what `localdiff.model.fused_layer_ops` is tested against.
Shape letters: N rows, D width, I inner width, H heads, K key-value heads, d head size, E experts, k experts per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from quant.modules.activation import gelu

from .formulas import rms_norm, rotate

if TYPE_CHECKING:
    from .attention import Attention
    from .block import Layer
    from .moe import Router


class LayerOps:
    """The plain path: each op as a sequence of torch operations."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`rms_norm` of rows [..., D]."""
        return rms_norm(x, weight, eps)

    def qkv_norm_rope(
        self, attention: Attention, q: Tensor, k: Tensor, v: Tensor | None, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [..., N, H, d] and keys [..., N, K, d], normed and rotated, and values, normed.

        Args:
            v: None where values are the keys before their norm.
        """
        values = rms_norm(k if v is None else v, None, attention.eps)
        q = rotate(rms_norm(q, attention.q_norm.weight, attention.eps), rotary)
        return q, rotate(rms_norm(k, attention.k_norm.weight, attention.eps), rotary), values

    def add_attention_and_norm(self, layer: Layer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The residual stream [..., N, D] after attention `y`, and the inputs of MLP, experts and router."""
        eps = layer.eps
        x = x + rms_norm(y, layer.post_attention_layernorm.weight, eps)
        dense_in = rms_norm(x, layer.pre_feedforward_layernorm.weight, eps)
        expert_in = rms_norm(x, layer.pre_feedforward_layernorm_2.weight, eps)
        return x, dense_in, expert_in, rms_norm(x, None, eps) * layer.router.scale * x.shape[-1] ** -0.5

    def gelu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        """`gelu(gate) * up`, [..., I]."""
        return gelu(gate) * up

    def route(self, router: Router, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Experts [N, k] of the highest scores [N, E], and their routing weights as `Router` defines them."""
        probabilities = scores.softmax(dim=-1, dtype=torch.float32)
        weights, expert_ids = probabilities.topk(router.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return expert_ids, weights * router.per_expert_scale[expert_ids]

    def experts(
        self, layer: Layer, x: Tensor, expert_ids: Tensor, routing_weights: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Output of a layer's experts for rows [..., N, D], as `merge_branches` takes it.

        Args:
            expert_ids, routing_weights: [N, k], the experts of each row.

        Returns:
            Outputs [..., N, D] and None; or outputs [N, k, D] of the single experts, and the weights [N, k] to sum
            them with.
        """
        return layer.experts(x.flatten(0, -2), expert_ids, routing_weights).view(x.shape), None

    def merge_branches(
        self,
        layer: Layer,
        x: Tensor,
        dense_out: Tensor,
        expert_out: Tensor,
        routing_weights: Tensor | None,
        is_canvas: Tensor,
    ) -> Tensor:
        """The residual stream at the end of a layer, from both branches [..., N, D].

        Args:
            expert_out: if `routing_weights` [N, k] are given, the outputs [N, k, D] of each row's experts, still to be
                summed.
        """
        eps = layer.eps
        if routing_weights is not None:
            expert_out = (expert_out.float() * routing_weights[..., None]).sum(dim=-2).to(expert_out.dtype)
        both = rms_norm(dense_out, layer.post_feedforward_layernorm_1.weight, eps)
        both = both + rms_norm(expert_out, layer.post_feedforward_layernorm_2.weight, eps)
        x = x + rms_norm(both, layer.post_feedforward_layernorm.weight, eps)
        return x * torch.where(is_canvas[:, None], layer.layer_scalar, layer.encoder_layer_scalar)


PLAIN = LayerOps()


def set_layer_ops(network: nn.Module, layer_ops: LayerOps) -> None:
    """Makes all modules of a network that use layer ops compute them this way."""
    for module in network.modules():
        if isinstance(getattr(module, "layer_ops", None), LayerOps):
            setattr(module, "layer_ops", layer_ops)  # noqa: B010  # to a checker every attribute of a module is a tensor
