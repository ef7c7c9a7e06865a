"""Estimates how much device memory a model takes, from names and shapes alone.

Knows the peak memory of a step of this model; allocates and measures nothing. `localdiff quantize` shows the estimate
before a download, and the loader checks it before it fills a GPU. GB is 10⁹ bytes.

    weights (by class)  +  key-value cache (at a context)  +  step buffers  +  slack
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from localdiff.diffusion.reading import MAX_ELEMENTS
from localdiff.model.attention import MAX_SCORES
from quant.cuda.embedding import SHARES
from quant.modules import QuantEmbedding
from quant.planning.plan import Plan, tensor_class

CANVAS, WINDOW = 256, 1024
"""Positions of a canvas, and of a sliding layer's window, in the released model."""
ACTIVATION_BYTES = 2
PREFILL_CHUNK = 1024
"""Maximum rows of a prompt per pass: the engine's default, and what this account assumes."""
SLACK = 1_500_000_000
"""What a GPU holds besides tensors: on an H100 and an H200, with `4bit`, 0.8 to 0.9 GB for context, kernels and CUDA
graphs, and 0.34 to 0.69 GB that torch's allocator had reserved and could not use (`docs/gpu-measured.md`)."""
SLACK_BESIDES_CONTEXT = SLACK - 400_000_000
"""The same where a process that has a CUDA context asks for free memory, which excludes the context already. An
H100's context takes 0.56 GB; other GPUs' may take less."""

_LOGIT_BYTES = 2 * 4
"""Bytes per logit while they are read: scores and probabilities in fp32."""
_SCORE_BYTES = 3 * 4
"""Bytes per attention score: fp32 scores and their softmax, and both in 16 bits."""
_DECODE_BYTES = 8
"""Decoding holds a weight as fp32, as the result, and its code as an index or a float."""

_KEYS = re.compile(r"model\.decoder\.layers\.(\d+)\.self_attn\.k_proj\.weight")
_EMBEDDING = "model.decoder.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldTensor:
    """A tensor of a loaded model: its name and shape in the source, and the bytes it is stored in."""

    name: str
    shape: tuple[int, ...]
    nbytes: int


def held_by_plan(plan: Plan) -> tuple[HeldTensor, ...]:
    """The tensors that a model quantized by a plan will hold."""
    return tuple(
        HeldTensor(name=tensor.name, shape=tensor.source.shape, nbytes=tensor.stored_bytes)
        for tensor in plan.tensors
        if tensor.scheme != "drop"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryAccount:
    """Bytes on one device, with one sequence.

    Attributes:
        weights: tensor class → bytes.
        cache: keys and values of the whole context.
        buffers: peak of everything else that one step or one chunk of a prompt allocates.
        slack: what the CUDA context and the allocator take.
    """

    weights: dict[str, int]
    cache: int
    buffers: int
    slack: int

    @classmethod
    def of(
        cls,
        tensors: Iterable[HeldTensor],
        *,
        context: int,
        window: int = WINDOW,
        canvas: int = CANVAS,
        activation_bytes: int = ACTIVATION_BYTES,
        slack: int = SLACK,
    ) -> Self:
        """The account of a model.

        Args:
            context: positions that the cache is made for.
            window: positions that a sliding layer sees, itself included.
            activation_bytes: bytes of an activation, and of a cached key or value.
            slack: bytes to leave free.
        """
        tensors = tuple(tensors)
        weights: dict[str, int] = {}
        for tensor in tensors:
            label = tensor_class(tensor.name)
            weights[label] = weights.get(label, 0) + tensor.nbytes
        return cls(
            weights=weights,
            cache=cache_bytes(tensors, context=context, window=window, itemsize=activation_bytes),
            buffers=_buffers(tensors, context=context, canvas=canvas, itemsize=activation_bytes),
            slack=slack,
        )

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.weights.values()) + self.cache + self.buffers + self.slack

    def fits(self, free: int) -> bool:
        """Whether a GPU has room for all of it, `slack` being SLACK.

        Args:
            free: bytes that a process found free; its CUDA context, a part of the slack, is excluded already.
        """
        return self.total - (SLACK - SLACK_BESIDES_CONTEXT) <= free


def cache_bytes(tensors: Iterable[HeldTensor], *, context: int, window: int, itemsize: int) -> int:
    """Bytes of keys and values: full layers keep `context` positions, sliding ones the last `window - 1`.

    A layer is full where it has no `v_proj`; its values are cached beside its keys all the same.
    """
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    total = 0
    for name, shape in shapes.items():
        if _KEYS.fullmatch(name):
            slots = min(window - 1, context) if _is_sliding(name, shapes) else context
            total += 2 * shape[0] * slots * itemsize
    return total


def _is_sliding(keys: str, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    return keys.replace("k_proj", "v_proj") in shapes


def _buffers(tensors: Iterable[HeldTensor], *, context: int, canvas: int, itemsize: int) -> int:
    """The largest peak of three: the layers, the head with the reading of its logits, and two captured steps.

    A step frees its logits before the next one makes its own; its prediction stays as one embedding per row. On a GPU,
    though, a captured step keeps its memory while a step of another shape runs.
    """
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    vocab_size, width = shapes[_EMBEDDING]
    layers = {name: shape for name, shape in shapes.items() if name.startswith("model.decoder.layers.")}
    rows = max(canvas, min(PREFILL_CHUNK, context))
    layer = _layer_buffers(layers, width, positions=context + rows, rows=rows, itemsize=itemsize)
    logits = canvas * vocab_size * itemsize
    reading = _LOGIT_BYTES * max(vocab_size, min(MAX_ELEMENTS, canvas * vocab_size))
    decoding = min(QuantEmbedding.chunk, vocab_size) * width * _DECODE_BYTES
    soft = canvas * width * (itemsize + 4)
    captured = logits + canvas * width * (4 * SHARES + 4 + 2 * itemsize)
    return soft + max(logits + max(reading, decoding), layer, 2 * captured)


def _layer_buffers(
    layers: Mapping[str, tuple[int, ...]], width: int, *, positions: int, rows: int, itemsize: int
) -> int:
    """One layer: rows of activations, one expert or projection decoded, keys and values it reads, scores."""
    two_axes = [shape for shape in layers.values() if len(shape) == 2]
    experts = [shape[1:] for shape in layers.values() if len(shape) == 3]
    decoded = max((out * in_ for out, in_ in (*two_axes, *experts)), default=0) * _DECODE_BYTES
    widest = max((max(shape) for shape in two_axes), default=width)
    activations = rows * (4 * widest * itemsize + 3 * width * 4)
    full = [shape[0] for name, shape in layers.items() if _KEYS.fullmatch(name) and not _is_sliding(name, layers)]
    kv_bytes = 2 * max(full, default=0) * positions * itemsize
    queries = [shape[0] for name, shape in layers.items() if name.endswith("self_attn.q_proj.weight")]
    smallest_head = min((shape[0] for name, shape in layers.items() if name.endswith("q_norm.weight")), default=1)
    heads = max(queries, default=0) // smallest_head
    scores = _SCORE_BYTES * min(MAX_SCORES, heads * rows * positions)
    return max(decoded, kv_bytes + scores) + activations
