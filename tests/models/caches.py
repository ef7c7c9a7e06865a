"""Compares caches: one that was read in pieces with one that was read at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma

CPU = torch.device("cpu")


@torch.inference_mode()
def prefill(model: DiffusionGemma, ids: Sequence[int], capacity: int) -> KVCache:
    """A new cache that holds these ids, read in one pass."""
    cache = KVCache(model.config, capacity, torch.float32, CPU)
    model.encode(torch.tensor(ids, dtype=torch.long), cache)
    return cache


@torch.inference_mode()
def assert_same(model: DiffusionGemma, cache: KVCache, fresh: KVCache) -> None:
    """Keys, values and what a canvas sees are the same, whatever the order of the slots."""
    assert cache.length == fresh.length
    for ours, theirs in zip(cache.layers, fresh.layers, strict=True):
        order, expected = (layer.positions(cache.length).argsort() for layer in (ours, theirs))
        for mine, other in zip(ours.read(cache.length), theirs.read(cache.length), strict=True):
            torch.testing.assert_close(mine[:, order], other[:, expected], atol=1e-4, rtol=1e-4)
    canvas = torch.arange(model.config.canvas_length) % model.config.vocab_size
    torch.testing.assert_close(
        DiffusionGemma.denoise(model, canvas, cache),
        DiffusionGemma.denoise(model, canvas, fresh),
        atol=1e-4,
        rtol=1e-4,
    )
