"""The weights of a layer that its layer ops take, by the ops' own names."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from localdiff.model.attention import Attention
from localdiff.model.block import Layer


def after_attention(layer: Layer) -> dict[str, Any]:
    """What `add_attention_and_norm` takes."""
    return {
        "attention_weight": layer.post_attention_layernorm.weight,
        "dense_weight": layer.pre_feedforward_layernorm.weight,
        "expert_weight": layer.pre_feedforward_layernorm_2.weight,
        "router_scale": layer.router.scale,
        "eps": layer.eps,
    }


def of_branches(layer: Layer, is_canvas: Tensor) -> dict[str, Any]:
    """What `merge_branches` takes."""
    return {
        "dense_weight": layer.post_feedforward_layernorm_1.weight,
        "expert_weight": layer.post_feedforward_layernorm_2.weight,
        "both_weight": layer.post_feedforward_layernorm.weight,
        "is_canvas": is_canvas,
        "canvas_scalar": layer.layer_scalar,
        "encoder_scalar": layer.encoder_layer_scalar,
        "eps": layer.eps,
    }


def of_heads(attention: Attention, rotary: tuple[Tensor, Tensor]) -> tuple[Any, ...]:
    """What `qkv_norm_rope` takes behind queries, keys and values."""
    return attention.q_norm.weight, attention.k_norm.weight, rotary, attention.eps
