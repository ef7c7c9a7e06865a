"""How much device memory a model takes, from names and shapes alone.

Knows what a step of this model holds at its fullest; allocates and measures nothing. The plan shows it before a
download, the loader asks it before it fills a card. GB is 10⁹ bytes.

    weights (by class)  +  key-value cache (at a context)  +  step buffers  +  slack
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from .manifest import Manifest
from .plan import Plan, tensor_class
from .released import CANVAS, WINDOW

ACTIVATION_BYTES = 2
PREFILL_CHUNK = 1024
SLACK = 500_000_000
"""What a CUDA context takes (0.3 to 0.4 GB) and what an allocator cannot use. A budget, not a measurement."""

_READING = 4 * 32 * 1024 * 1024
"""Reading logits in blocks of 8 M elements: scores, probabilities, their logarithms and one product, in fp32."""
_SCORES = 3 * 32 * 1024 * 1024
"""Attention in blocks of 8 M scores: fp32 scores and their softmax, and both in 16 bits."""
_DECODE_ROWS = 4096
_DECODE_BYTES = 8
"""Decoding holds a weight as fp32, as the result, and its code as an index or a float."""

_KEYS = re.compile(r"model\.decoder\.layers\.(\d+)\.self_attn\.k_proj\.weight")
_EMBEDDING = "model.decoder.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A tensor that a model holds: its name and shape in the source, and the bytes it is stored in."""

    name: str
    shape: tuple[int, ...]
    nbytes: int


def held_by_plan(plan: Plan) -> tuple[Held, ...]:
    """What a model made by a plan will hold."""
    return tuple(
        Held(name=tensor.name, shape=tensor.source.shape, nbytes=tensor.stored_bytes)
        for tensor in plan.tensors
        if tensor.fate != "drop"
    )


def held_by_manifest(manifest: Manifest) -> tuple[Held, ...]:
    """What a model with this manifest holds."""
    return tuple(
        Held(name=name, shape=entry.shape, nbytes=sum(part.nbytes for part in entry.parts(name)))
        for name, entry in manifest.tensors.items()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryAccount:
    """Bytes on one device, with one sequence.

    Attributes:
        weights: tensor class → bytes.
        cache: keys and values of the whole context.
        buffers: the most that one step or one chunk of a prompt holds besides.
        slack: what the device and the allocator keep for themselves.
    """

    weights: dict[str, int]
    cache: int
    buffers: int
    slack: int

    @classmethod
    def of(
        cls,
        held: Iterable[Held],
        *,
        context: int,
        window: int = WINDOW,
        canvas: int = CANVAS,
        prefill_chunk: int = PREFILL_CHUNK,
        slack: int = SLACK,
    ) -> Self:
        """The account of a model.

        Args:
            held: its tensors.
            context: positions that the cache is made for.
            window: positions that a sliding layer sees, itself included.
            canvas: positions of a canvas.
            prefill_chunk: most prompt rows in one pass.
            slack: bytes to leave.
        """
        held = tuple(held)
        weights: dict[str, int] = {}
        for tensor in held:
            label = tensor_class(tensor.name)
            weights[label] = weights.get(label, 0) + tensor.nbytes
        return cls(
            weights=weights,
            cache=cache_bytes(held, context=context, window=window),
            buffers=_buffers(held, context=context, canvas=canvas, prefill_chunk=prefill_chunk),
            slack=slack,
        )

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.weights.values()) + self.cache + self.buffers + self.slack


def cache_bytes(held: Iterable[Held], *, context: int, window: int) -> int:
    """Bytes of keys and values: full layers keep `context` positions, sliding ones the last `window - 1`.

    A layer is full where it has no `v_proj`; its values are cached beside its keys all the same.
    """
    shapes = {tensor.name: tensor.shape for tensor in held}
    total = 0
    for name, shape in shapes.items():
        if _KEYS.fullmatch(name):
            slots = min(window - 1, context) if _is_sliding(name, shapes) else context
            total += 2 * shape[0] * slots * ACTIVATION_BYTES
    return total


def _is_sliding(keys: str, shapes: dict[str, tuple[int, ...]]) -> bool:
    return keys.replace("k_proj", "v_proj") in shapes


def _buffers(held: Iterable[Held], *, context: int, canvas: int, prefill_chunk: int) -> int:
    """Peak of what is not kept: the larger of a pass through the layers and the head with the reading of its logits.

    Logits of the last step live until the next ones are there.
    """
    shapes = {tensor.name: tensor.shape for tensor in held}
    vocab_size, width = shapes[_EMBEDDING]
    logits = canvas * vocab_size * ACTIVATION_BYTES
    head = logits + max(_READING, _DECODE_ROWS * width * _DECODE_BYTES)
    return logits + max(head, _layer_pass(shapes, width, context=context, rows=max(canvas, prefill_chunk)))


def _layer_pass(shapes: dict[str, tuple[int, ...]], width: int, *, context: int, rows: int) -> int:
    """Peak of one layer: rows of activations, one expert or projection decoded, keys and values it reads, scores."""
    two_axes = [shape for name, shape in shapes.items() if _in_layer(name) and len(shape) == 2]
    experts = [shape[1:] for name, shape in shapes.items() if _in_layer(name) and len(shape) == 3]
    decoded = max((out * in_ for out, in_ in (*two_axes, *experts)), default=0) * _DECODE_BYTES
    widest = max((max(shape) for shape in two_axes), default=width)
    activations = rows * (4 * widest * ACTIVATION_BYTES + 3 * width * 4)
    full = [shape[0] for name, shape in shapes.items() if _KEYS.fullmatch(name) and not _is_sliding(name, shapes)]
    read = 2 * max(full, default=0) * (context + rows) * ACTIVATION_BYTES
    return max(decoded, read + _SCORES) + activations


def _in_layer(name: str) -> bool:
    return name.startswith("model.decoder.layers.")
