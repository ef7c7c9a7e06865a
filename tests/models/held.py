"""What a model holds, its weights by its manifest, for comparison with its plan and its account."""

from __future__ import annotations

from localdiff.memory_account import HeldTensor
from localdiff.model.cache import KVCache
from quant.files.manifest import Manifest


def held_by_manifest(manifest: Manifest) -> tuple[HeldTensor, ...]:
    """What a model with this manifest holds."""
    return tuple(
        HeldTensor(name=name, shape=entry.shape, nbytes=sum(part.nbytes for part in entry.parts(name)))
        for name, entry in manifest.tensors.items()
    )


def held_by_cache(cache: KVCache) -> int:
    """Bytes of all buffers, without snapshots."""
    return sum(buffer.nbytes for layer in cache.layers for buffer in (layer.keys, layer.values))
