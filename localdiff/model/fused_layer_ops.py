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

    def heads(
        self, attention: Attention, q: Tensor, k: Tensor, v: Tensor | None, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `LayerOps.heads`, of one sequence."""
        if q.dim() > 3:
            return super().heads(attention, q, k, v, rotary)
        return kernels.heads(q, k, v, attention.q_norm.weight, attention.k_norm.weight, rotary, attention.eps)

    def after_attention(self, layer: Layer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `LayerOps.after_attention`, of one sequence."""
        if x.dim() > 2:
            return super().after_attention(layer, x, y)
        return kernels.after_attention(
            x,
            y,
            attention=layer.post_attention_layernorm.weight,
            dense=layer.pre_feedforward_layernorm.weight,
            routed=layer.pre_feedforward_layernorm_2.weight,
            router=layer.router.scale,
            eps=layer.eps,
        )

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """`gelu(gate) * up`, [..., I]."""
        return kernels.gated(gate, up)

    def choose(self, router: Router, scores: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerOps.choose`; of experts with the same score the first."""
        return kernels.choose(scores, router.per_expert_scale, router.top_k)

    def experts(self, layer: Layer, x: Tensor, index: Tensor, share: Tensor) -> tuple[Tensor, Tensor | None]:
        """As `LayerOps.experts`; grouped experts leave their sum to `close`."""
        if x.dim() > 2 or not isinstance(layer.experts, CudaExperts):
            return super().experts(layer, x, index, share)
        return layer.experts(x, index, share, summed=False), share

    def close(
        self, layer: Layer, x: Tensor, dense: Tensor, routed: Tensor, share: Tensor | None, is_canvas: Tensor
    ) -> Tensor:
        """As `LayerOps.close`, of one sequence."""
        if x.dim() > 2:
            return super().close(layer, x, dense, routed, share, is_canvas)
        return kernels.close(
            x,
            dense,
            routed,
            share,
            dense_weight=layer.post_feedforward_layernorm_1.weight,
            routed_weight=layer.post_feedforward_layernorm_2.weight,
            both_weight=layer.post_feedforward_layernorm.weight,
            is_canvas=is_canvas,
            canvas_scalar=layer.layer_scalar,
            encoder_scalar=layer.encoder_layer_scalar,
            eps=layer.eps,
        )
