"""What a quantized model holds by its manifest, for comparison with what its plan foretells."""

from __future__ import annotations

from quant.manifest import Manifest
from quant.memory import Held


def held_by_manifest(manifest: Manifest) -> tuple[Held, ...]:
    """What a model with this manifest holds."""
    return tuple(
        Held(name=name, shape=entry.shape, nbytes=sum(part.nbytes for part in entry.parts(name)))
        for name, entry in manifest.tensors.items()
    )
