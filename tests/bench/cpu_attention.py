"""`python -m tests.bench.cpu_attention [--context N]`: attention of a layer on a CPU, by torch and by the kernel in C.

The two kinds of layers of the released model, in bf16: a denoise step, and the last chunk of a prompt, over a cache
that is full up to the context. Both ways take turns, so that other work on the machine meets both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from localdiff.bench.step.released import released_config
from localdiff.hardware import cpu_name
from localdiff.memory_account import PREFILL_CHUNK
from localdiff.model.attention import AttentionKernel, attend_cached
from localdiff.model.cache import LayerCache
from localdiff.model.config import LayerConfig
from quant.cpu.choice import attention_kernel

REPEATS = 15


def milliseconds(ways: Sequence[Callable[[], object]]) -> list[list[float]]:
    """Of each way, in turns, after one round that warms up."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(REPEATS + 1):
        for times, way in zip(taken, ways, strict=True):
            began = time.perf_counter()
            way()
            times.append(1e3 * (time.perf_counter() - began))
    return [times[1:] for times in taken]


def attends(
    layer: LayerConfig, heads: int, context: int, commit: int, canvas: int, kernel: AttentionKernel | None
) -> Callable[[], Tensor]:
    """One layer's attention of commit or canvas rows behind `context` positions."""
    cache = LayerCache(layer, context + commit, torch.bfloat16, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for buffer in (cache.keys, cache.values):
        buffer.normal_(generator=generator)
    rows = commit + canvas
    q = torch.randn(rows, heads, layer.head_dim, generator=generator).mul(layer.head_dim**-0.5).bfloat16()
    k, v = torch.randn(2, rows, layer.num_kv_heads, layer.head_dim, generator=generator).bfloat16()
    attend = attend_cached(cache, context, commit, kernel)
    return lambda: attend(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)).transpose(0, 1).flatten(-2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cpu_attention", description=__doc__)
    parser.add_argument("--context", type=int, default=1024)
    context = parser.parse_args().context
    config = released_config(6)
    kinds = {layer.kind: layer for layer in config.layers}
    kernel = attention_kernel((layer.head_dim for layer in kinds.values()), 1 << 30)
    if kernel is None:
        raise SystemExit("attention runs through torch here")
    chunk = min(context, PREFILL_CHUNK)
    print(f"{cpu_name()}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}; {kernel.path}")
    print(f"context {context:,}; ms, least and median of {REPEATS}\n{'':32}{'torch':>16}{'kernel':>16}")
    for name, cached, commit, canvas in (
        (f"step, {config.canvas_length} rows", context, 0, config.canvas_length),
        (f"prompt, last {chunk} rows", context - chunk, chunk, 0),
    ):
        for kind, layer in kinds.items():
            ways = [attends(layer, config.num_heads, cached, commit, canvas, way) for way in (None, kernel)]
            with torch.inference_mode():
                columns = [f"{min(times):8.1f}{statistics.median(times):8.1f}" for times in milliseconds(ways)]
            print(f"{f'{name}, {kind}':32}" + "".join(columns))


if __name__ == "__main__":
    main()
