"""A tiny model whose widths divide into groups, for measurements that take no time."""

from __future__ import annotations

import dataclasses

from localdiff.bench.step.ceilings import Ceilings
from localdiff.bench.step.subject import Subject, random_subject
from localdiff.model.config import ModelConfig
from tests.models import tiny

CEILINGS = Ceilings(copy_rate=1e10, products={"fp32": 1e11, "bf16": 2e11, "int8": 4e11})
ALL_LAYERS = 7
CANVAS = tiny.CANVAS


def small_config(layers: int = 3) -> ModelConfig:
    """The first `layers` of nine; every third layer is full."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 3
    whole = tiny.config(
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=64,
        head_dim=16,
        global_head_dim=32,
        num_hidden_layers=len(kinds),
        layer_types=kinds,
        num_experts=8,
    )
    return dataclasses.replace(whole, layers=whole.layers[:layers])


def small_subject(recipe: str = "4bit", *, layers: int = 4, dtype: str = "fp32", context: int = 16) -> Subject:
    """Four of seven layers by default: the fewest that hold every kind and do not end in a full one."""
    return random_subject(
        recipe=recipe,
        layers=layers,
        context=context,
        device="cpu",
        dtype=dtype,
        configure=small_config,
        all_layers=ALL_LAYERS,
    )(lambda _: None)
