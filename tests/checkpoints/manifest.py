"""A manifest with an entry of every kind, for files that do not exist."""

from __future__ import annotations

from quant.files.manifest import FileEntry, Manifest, ShardEntry, TensorEntry
from quant.recipe import RECIPES
from quant.released import released_shapes

HASH = "0123456789abcdef" * 4
MANIFEST = Manifest(
    tool="localdiff 0.1.0",
    model="org/näme",
    revision=None,
    sources={"model.safetensors": FileEntry(nbytes=12, sha256=HASH)},
    recipe=RECIPES["4bit"].resolved(released_shapes()),
    tensors={
        "a.weight": TensorEntry(scheme="nf4", shape=(2, 64), dtype="BF16", shard="s.safetensors", error=0.083),
        "b": TensorEntry(scheme="keep", shape=(1,), dtype="F32", shard="s.safetensors", error=0.0),
    },
    dropped=("v",),
    shards={"s.safetensors": ShardEntry(nbytes=99, sha256=HASH, source="model.safetensors")},
    files={"config.json": FileEntry(nbytes=3, sha256=HASH)},
)
