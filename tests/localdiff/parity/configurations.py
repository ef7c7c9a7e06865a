"""The configurations in which localdiff is compared with the reference, each named by its purpose."""

from __future__ import annotations

import torch

from tests.checkpoints.layouts import Spec

CONFIGURATIONS: dict[str, Spec] = {
    "plain": Spec(layers="ssf", seed=1),
    "released-shape-in-small": Spec(
        layers="sssssf",
        hidden=88,
        heads=4,
        kv_heads=2,
        full_kv_heads=1,
        experts=16,
        top_k=4,
        expert_mlp=24,
        seed=2,
    ),
    "full-layers-alternate": Spec(layers="sfsf", style="per_layer", experts=8, top_k=3, seed=3),
    "no-sliding-layer": Spec(layers="ff", heads=4, full_kv_heads=2, rotary=0.5, seed=4),
    "window-longer-than-everything": Spec(layers="ssf", window=256, seed=5),
    "window-of-two": Spec(layers="ssf", window=2, canvas=4, seed=6),
    "multi-head-attention": Spec(layers="sf", heads=4, kv_heads=4, full_kv_heads=4, head_dim=8, seed=7),
    "six-heads-over-three": Spec(layers="sf", hidden=40, heads=6, kv_heads=3, full_kv_heads=2, seed=8),
    "full-heads-as-sliding": Spec(layers="ssf", heads=4, kv_heads=2, full_kv_heads=None, full_head_dim=16, seed=9),
    "full-heads-by-layer": Spec(layers="sff", heads=4, kv_heads=2, full_kv_heads=4, style="per_layer", seed=10),
    "one-expert-a-row": Spec(layers="sf", experts=5, top_k=1, seed=11),
    "all-experts-a-row": Spec(layers="sf", experts=4, top_k=4, seed=12),
    "soft-cap-off": Spec(layers="ssf", soft_cap=None, seed=13),
    "soft-cap-tight": Spec(layers="ssf", soft_cap=4.0, sharpness=4.0, seed=14),
    "sharded": Spec(layers="ssf", shard="60KB", canvas=16, seed=15),
    "sharded-by-layer": Spec(layers="ssf", shard="60KB", style="per_layer", canvas=32, vocab=200, seed=16),
    "stored-in-bf16": Spec(layers="ssf", stored=torch.bfloat16, rotary=1.0, eps=1e-5, seed=17),
}
