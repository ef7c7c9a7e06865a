"""The ops between a layer's GEMMs: norms, RoPE, residuals, gates, routing.

    [norm] ─► q, k, v ─► [qkv_norm_rope] ─► attention ─► o ─► [add_attention_and_norm] ─► dense_in, expert_in, router_in

    dense_in ──► gate, up ─► [gelu_mul] ─► down ──┐
    router_in ─► [scores] ─► [route] ─┐           ├─► [merge_branches]
    expert_in ────────────────────────┴► experts ─┘

Knows rows and the weights of norms; the only module it knows is the router. `LayerOps` is the plain path, against which
the same ops as one launch each are checked (`localdiff.kernels.layer_ops`).
Shape letters: N rows, D width, I inner width, H heads, K key-value heads, d head size, E experts, k experts per row,
S parts of a sum.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from localdiff.model.formulas import rms_norm, rotate
from quant.modules.linear import gelu


class LayerOps:
    """The plain path: each op as a sequence of torch operations.

    Attributes:
        sums_experts: whether `merge_branches` should sum the experts' outputs, because that costs it no extra launch.
        sums_parts: whether the output of attention and of the dense MLP may be left to the ops in parts [S, N, D].
    """

    sums_experts = False
    sums_parts = False

    @staticmethod
    def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`rms_norm` of rows [..., D]."""
        return rms_norm(x, weight, eps)

    @staticmethod
    def qkv_norm_rope(
        q: Tensor,
        k: Tensor,
        v: Tensor | None,
        q_weight: Tensor,
        k_weight: Tensor,
        rotary: tuple[Tensor, Tensor],
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [..., N, H, d] and keys [..., N, K, d], normed and rotated, and values, normed.

        Args:
            v: None where values are the keys before their norm.
            q_weight, k_weight: [d], of the two norms; the norm of values has no weight.
        """
        values = rms_norm(k if v is None else v, None, eps)
        return rotate(rms_norm(q, q_weight, eps), rotary), rotate(rms_norm(k, k_weight, eps), rotary), values

    @staticmethod
    def add_attention_and_norm(
        x: Tensor,
        y: Tensor,
        *,
        attention_weight: Tensor,
        dense_weight: Tensor,
        expert_weight: Tensor,
        router_scale: Tensor,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The residual stream [..., N, D] after attention `y`, and the inputs of MLP, experts and router.

        Args:
            attention_weight, dense_weight, expert_weight: [D], of the norms of `y` and of both branches' inputs.
            router_scale: [D]; the router's input is also scaled by D^-½.
        """
        x = x + rms_norm(y, attention_weight, eps)
        dense_in, expert_in = rms_norm(x, dense_weight, eps), rms_norm(x, expert_weight, eps)
        return x, dense_in, expert_in, rms_norm(x, None, eps) * router_scale * x.shape[-1] ** -0.5

    @staticmethod
    def gelu_mul(gate: Tensor, up: Tensor) -> Tensor:
        """`gelu(gate) * up`, [..., I]."""
        return gelu(gate) * up

    @staticmethod
    def scores(router: nn.Module, x: Tensor) -> Tensor:
        """A router's scores [N, E] of rows [N, D], or another form of the scores that `route` of this class takes."""
        scores: Tensor = router(x)
        return scores

    @staticmethod
    def route(scores: Tensor, per_expert_scale: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        """Experts [N, k] of the highest scores [N, E], and their routing weights as `Router` defines them."""
        probabilities = scores.softmax(dim=-1, dtype=torch.float32)
        weights, expert_ids = probabilities.topk(top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return expert_ids, weights * per_expert_scale[expert_ids]

    @staticmethod
    def merge_branches(
        x: Tensor,
        dense_out: Tensor,
        expert_out: Tensor,
        routing_weights: Tensor | None,
        *,
        dense_weight: Tensor,
        expert_weight: Tensor,
        both_weight: Tensor,
        is_canvas: Tensor,
        canvas_scalar: Tensor,
        encoder_scalar: Tensor,
        eps: float,
    ) -> Tensor:
        """The residual stream at the end of a layer, from both branches [..., N, D].

        Args:
            expert_out: if `routing_weights` [N, k] are given, the outputs [N, k, D] of each row's experts, still to be
                summed.
            dense_weight, expert_weight, both_weight: [D], of the norms of either branch and of their sum.
            is_canvas: bool [N], which rows take `canvas_scalar` [1]; the others take `encoder_scalar` [1].
        """
        if routing_weights is not None:
            expert_out = (expert_out.float() * routing_weights[..., None]).sum(dim=-2).to(expert_out.dtype)
        both = rms_norm(dense_out, dense_weight, eps) + rms_norm(expert_out, expert_weight, eps)
        x = x + rms_norm(both, both_weight, eps)
        return x * torch.where(is_canvas[:, None], canvas_scalar, encoder_scalar)


PLAIN = LayerOps()


class UsesLayerOps(nn.Module):
    """A module that computes layer ops.

    Attributes:
        layer_ops: the implementation it uses.
    """

    layer_ops: LayerOps = PLAIN


def set_layer_ops(network: nn.Module, layer_ops: LayerOps) -> None:
    """Makes all modules of a network that use layer ops compute them this way."""
    for module in network.modules():
        if isinstance(module, UsesLayerOps):
            module.layer_ops = layer_ops
