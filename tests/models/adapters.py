"""Adapters that change something, on small models."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma

EVERYTHING = (
    *(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")),
    *(f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")),
    *("experts.gate_up_proj", "experts.down_proj", "router.proj"),
    *(f"self_conditioning.{name}" for name in ("gate_proj", "up_proj", "down_proj")),
)


def randomize(parameters: Iterable[nn.Parameter], seed: int = 0, scale: float = 0.2) -> None:
    """Draws both factors, so that their product is not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


@torch.no_grad()
def hidden(network: DiffusionGemma, *, prompt: int = 11, commit: int = 5, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Hidden states and last keys, after a prefill, a pass over commit and canvas rows, and a step over canvas rows."""
    config = network.config
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(config.vocab_size, (prompt + commit + config.canvas_length,), generator=generator)
    soft = torch.randn(config.canvas_length, config.hidden_size, generator=generator)
    cache = KVCache(config, 64, torch.float32, torch.device("cpu"))
    network.encode(ids[:prompt], cache)
    canvas = ids[prompt + commit :]
    first = network(ids[prompt : prompt + commit], canvas, cache, soft)
    second = network(canvas[:0], canvas, cache, first)
    return torch.cat((first, second)), cache.layers[-1].keys.clone()
