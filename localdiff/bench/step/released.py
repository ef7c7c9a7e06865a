"""The released model's configuration, so that a model of its size can be made without a download.

Knows numbers; a test compares them with the published `config.json`.
"""

from __future__ import annotations

from localdiff.memory_account import CANVAS, WINDOW
from localdiff.model.config import LayerConfig, ModelConfig, RopeConfig
from quant.released import FULL_EVERY, LAYERS, MAX_POSITIONS

_SLIDING = LayerConfig(
    head_dim=256,
    num_kv_heads=8,
    window=WINDOW,
    rope=RopeConfig(theta=1e4, rotary_fraction=1.0),
)
_FULL = LayerConfig(
    head_dim=512,
    num_kv_heads=2,
    window=None,
    rope=RopeConfig(theta=1e6, rotary_fraction=0.25),
)


def released_config(layers: int = LAYERS) -> ModelConfig:
    """The configuration of google/diffusiongemma-26B-A4B-it with its first `layers` layers."""
    return ModelConfig(
        vocab_size=262_144,
        hidden_size=2816,
        intermediate_size=2112,
        moe_intermediate_size=704,
        num_heads=16,
        num_experts=128,
        top_k_experts=8,
        canvas_length=CANVAS,
        sliding_window=WINDOW,
        rms_norm_eps=1e-6,
        softcap=30.0,
        pad_token_id=0,
        max_positions=MAX_POSITIONS,
        layers=tuple(_FULL if index % FULL_EVERY == FULL_EVERY - 1 else _SLIDING for index in range(layers)),
    )
