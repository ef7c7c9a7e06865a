"""Attention of a layer on a card: how far the kernel is from the plain way, and what both take.

Queries are scaled so that no softmax puts everything on a single key, which would hide most mistakes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from localdiff.kernels.attention import attend_rows
from localdiff.model.attention import attend_cached
from localdiff.model.cache import LayerCache
from localdiff.model.config import LayerConfig, RopeConfig
from tests.bench.gpu_clock import REPEATS, clocked
from tests.bench.gpu_results import Results

ROPE = RopeConfig(theta=1e4, rotary_fraction=1.0)
FAR = 0.02
"""A difference that rounding to bf16 does not explain: answers are means of values around 1, over at least 32 keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """One kind of layer: its window, key-value heads, query heads of each, and head size."""

    name: str
    window: int | None
    kv_heads: int
    group: int
    size: int


RELEASED = (
    Heads(name="sliding", window=1024, kv_heads=8, group=2, size=256),
    Heads(name="full", window=None, kv_heads=2, group=8, size=512),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The same attention computed both ways, as often as one likes."""

    name: str
    fast: Callable[[], Tensor]
    plain: Callable[[], Tensor]

    def distance(self) -> float:
        """The largest difference; the plain way runs second because it writes what it commits."""
        found = self.fast().float()
        return (found - self.plain().float()).abs().max().item()


def case_of(heads: Heads, context: int, commit: int, canvas: int, *, device: torch.device, dtype: torch.dtype) -> Case:
    """A step over a cache of `context` random positions, perhaps with a fused commit."""
    config = LayerConfig(
        head_dim=heads.size,
        num_kv_heads=heads.kv_heads,
        window=heads.window,
        rope=ROPE,
    )
    cache = LayerCache(config, context + commit, dtype, device)
    torch.manual_seed(0)
    for buffer in (cache.keys, cache.values):
        buffer.normal_()
    rows, length = commit + canvas, torch.full((), context, dtype=torch.int32, device=device)
    q, k, v = (
        torch.randn(rows, count, heads.size, device=device).to(dtype).transpose(0, 1)
        for count in (heads.kv_heads * heads.group, heads.kv_heads, heads.kv_heads)
    )
    q = q * heads.size**-0.5
    attend = attend_cached(cache, context, commit)

    def fast() -> Tensor:
        return attend_rows(
            q, k, v, keys=cache.keys, values=cache.values, length=length, commit_rows=commit, window=heads.window
        )

    name = f"{heads.name}, {context:,} positions" + ", commit" * bool(commit)
    return Case(name=name, fast=fast, plain=lambda: attend(q, k, v))


@torch.inference_mode()
def attention(contexts: Sequence[int], canvas: int, results: Results) -> int:
    """Microseconds and distances of both kinds of layers, without and with a fused commit; 1 if one is far off."""
    wrong = 0
    print(f"attention of a layer, {canvas} canvas rows, median of {REPEATS}:")
    for heads, context, commit in itertools.product(RELEASED, contexts, (0, canvas)):
        case = case_of(heads, context, commit, canvas, device=torch.device("cuda"), dtype=torch.bfloat16)
        far = case.distance()
        wrong |= not far <= FAR
        fast, plain = (clocked(way) for way in (case.fast, case.plain))
        print(f"  {case.name:40} {fast}, plain {plain}, off by {far:.4f}", flush=True)
        for how, taken in (("kernel", fast), ("plain", plain)):
            key = {"part": "attention", "name": f"{case.name}, {how}"}
            results.add(key, microseconds=taken.median, low=taken.low, high=taken.high, distance=far)
    if wrong:
        print(f"  WRONG: off by more than {FAR}")
    return int(wrong)
