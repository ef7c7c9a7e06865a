"""One transformer layer, shared by encoder and canvas rows.

Knows the order of norms, the two feed-forward branches and the layer scalars; does not know which rows see which.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import Attend, Attention
from .config import LayerConfig, ModelConfig
from .layer_ops import PLAIN, LayerOps
from .layers import GatedMLP, RMSNorm
from .moe import Experts, Router


class Layer(nn.Module):
    """Attention, then a dense MLP and a mixture of experts side by side over the same residual.

    Attributes:
        layer_scalar: [1] factor on the residual stream of canvas rows.
        encoder_layer_scalar: [1] the same for encoder rows; all other weights are shared.
    """

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
        self.experts: nn.Module = Experts(config)
        self.post_feedforward_layernorm_2 = RMSNorm(width, eps)
        self.post_feedforward_layernorm = RMSNorm(width, eps)
        self.layer_scalar = nn.Parameter(torch.ones(1))
        self.encoder_layer_scalar = nn.Parameter(torch.ones(1))
        self.eps = eps
        self.layer_ops: LayerOps = PLAIN

    def forward(self, x: Tensor, is_canvas: Tensor, rotary: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """Runs rows [..., N, D] through the layer.

        Args:
            is_canvas: bool [N], which rows take the canvas scalar.
            rotary: cos, sin of this kind of layer, [N, d] each.
        """
        y = self.self_attn(self.input_layernorm(x), rotary, attend)
        x, dense_in, expert_in, router_in = self.layer_ops.add_attention_and_norm(self, x, y)
        expert_ids, routing_weights = self.router(router_in.flatten(0, -2))
        expert_out, pending_weights = self.layer_ops.experts(self, expert_in, expert_ids, routing_weights)
        return self.layer_ops.merge_branches(self, x, self.mlp(dense_in), expert_out, pending_weights, is_canvas)
