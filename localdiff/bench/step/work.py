"""Minimal bytes and operations of one pass, by part.

Counted from shapes: a matmul of `[N, in]` with `[out, in]` is `2 · N · in · out` operations; weights are read once, in
the bytes that they are stored in; activations are written once and read once. Self-conditioning is counted in its
sparse form unless another number of ids is given, and reading the logits as one pass over them. Knows nothing about how
anything is computed.
Shape letters: N rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localdiff.bench.step.parts import Part, Place
from localdiff.model.config import LayerConfig, ModelConfig
from quant.codecs import CODECS
from quant.codecs.codec import stored_bytes

NORM_PASSES = 7 * 2 + 3 * 3
"""Reads and writes of the residual stream in a layer: seven norms, three sums or products of two."""
SOFT_ENTRIES = 64
"""Ids whose embeddings the sparse form of self-conditioning sums per row."""


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes to move and operations to do."""

    nbytes: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.nbytes + other.nbytes, self.operations + other.operations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One pass of a model.

    Attributes:
        config: that of the model.
        schemes: parameter → how it is stored.
        itemsize: bytes of an activation.
        rows: N.
        context: positions in the cache.
        experts_hit: share of a layer's experts that get any row.
        is_canvas: whether the rows are a canvas, with head, sampling and self-conditioning; else they are committed.
        soft_entries: ids that self-conditioning sums per row; the exact form sums the whole vocabulary.
    """

    config: ModelConfig
    schemes: Mapping[str, str]
    itemsize: int
    rows: int
    context: int
    experts_hit: float = 1.0
    is_canvas: bool = True
    soft_entries: int = SOFT_ENTRIES

    def work(self) -> dict[Place, Work]:
        """The work of the pass, by place."""
        places: dict[Place, Work] = defaultdict(Work)
        for index, layer in enumerate(self.config.layers):
            for part, work in self._layer(index, layer).items():
                places[part, index] = work
        places["norms, residuals", None] = Work(4 * self._stream)
        if self.is_canvas:
            places |= {(part, None): work for part, work in self._outside().items()}
        return dict(places)

    def _layer(self, index: int, layer: LayerConfig) -> dict[Part, Work]:
        config, prefix = self.config, f"layers.{index}."
        queries, keys = config.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
        attention = [("q", queries, config.hidden_size), ("k", keys, config.hidden_size)]
        if not layer.keys_are_values:
            attention.append(("v", keys, config.hidden_size))
        attention.append(("o", config.hidden_size, queries))
        positions = self.rows + min(self.context, self.context if layer.window is None else layer.window - 1)
        core = Work(
            self.itemsize * (2 * positions * keys + 2 * self.rows * queries),
            4 * self.rows * positions * queries,
        )
        return {
            "attention projections": self._projections(f"{prefix}self_attn.", attention),
            "attention core": core,
            "dense MLP": self._mlp(f"{prefix}mlp."),
            "router": self._product(f"{prefix}router.proj.weight", config.num_experts, config.hidden_size),
            "experts": self._experts(f"{prefix}experts."),
            "norms, residuals": Work(NORM_PASSES * self._stream),
        }

    def _outside(self) -> dict[Part, Work]:
        config = self.config
        logits = self.itemsize * self.rows * config.vocab_size
        table = self._stored("embed_tokens.weight", (config.vocab_size, config.hidden_size))
        summed = self.rows * self.soft_entries * config.hidden_size
        soft = Work(logits + min(self.itemsize * summed, table), 2 * summed)
        return {
            "head": self._product("embed_tokens.weight", config.vocab_size, config.hidden_size),
            "sampling": Work(2 * logits),
            "self-conditioning": soft + self._mlp("self_conditioning."),
        }

    @property
    def _stream(self) -> int:
        return self.itemsize * self.rows * self.config.hidden_size

    def _mlp(self, prefix: str) -> Work:
        width, inner = self.config.hidden_size, self.config.intermediate_size
        return self._projections(prefix, (("gate", inner, width), ("up", inner, width), ("down", width, inner)))

    def _projections(self, prefix: str, shapes: Iterable[tuple[str, int, int]]) -> Work:
        works = (self._product(f"{prefix}{name}_proj.weight", out, in_) for name, out, in_ in shapes)
        return sum(works, Work())

    def _experts(self, prefix: str) -> Work:
        config = self.config
        width, inner = config.hidden_size, config.moe_intermediate_size
        pairs = self.rows * config.top_k_experts
        shapes = {
            "gate_up_proj": (config.num_experts, 2 * inner, width),
            "down_proj": (config.num_experts, width, inner),
        }
        weights = sum(self._stored(prefix + name, shape) for name, shape in shapes.items())
        activations = self.itemsize * pairs * (2 * width + 3 * inner)
        return Work(weights * self.experts_hit + activations, 6 * pairs * width * inner)

    def _product(self, name: str, out: int, in_: int) -> Work:
        moved = self._stored(name, (out, in_)) + self.itemsize * self.rows * (out + in_)
        return Work(moved, 2 * self.rows * out * in_)

    def _stored(self, name: str, shape: tuple[int, ...]) -> int:
        return weight_bytes(self.schemes[name], shape, self.itemsize)


def weight_bytes(scheme: str, shape: tuple[int, ...], itemsize: int) -> int:
    """Bytes of a parameter that is stored in a scheme; one that is not quantized has `itemsize` for each number."""
    return stored_bytes(CODECS[scheme], shape) if scheme in CODECS else itemsize * math.prod(shape)


def by_part(works: Mapping[Place, Work]) -> dict[Part, Work]:
    """Sums over the layers."""
    parts: dict[Part, Work] = defaultdict(Work)
    for (part, _), work in works.items():
        parts[part] += work
    return dict(parts)
