"""`python -m tests.bench.cpu_attention [--context N]`: attention of a layer on a CPU, by torch and by the kernel in C.

The two kinds of layers of the released model, in bf16: a denoise step, and the last chunk of a prompt, over a cache
is full up to the context. Both ways run in one thread and take turns. Times count only while the thread runs, so other
work on the machine matters little. The kernel is also measured on a CPU with AMX, where a model's attention goes
through torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import torch
from torch import Tensor

from localdiff.bench.step.released import released_config
from localdiff.machine.hardware import cpu_name
from localdiff.memory_account import PREFILL_CHUNK
from localdiff.model.attention import attend_cached, causal_mask
from localdiff.model.cache import LayerCache
from localdiff.model.config import LayerConfig
from quant.cpu.native.attention import NativeAttention
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from tests.bench.one_thread import REPEATS, milliseconds


def attends(
    layer: LayerConfig, heads: int, cached: int, commit: int, canvas: int, kernel: NativeAttention | None
) -> Callable[[], Tensor]:
    """One layer's attention of commit or canvas rows after `cached` positions, up to the output's projection."""
    cache = LayerCache(layer, cached + commit, torch.bfloat16, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for buffer in (cache.keys, cache.values):
        buffer.normal_(generator=generator)
    rows = commit + canvas
    q = torch.randn(rows, heads, layer.head_dim, generator=generator).mul(layer.head_dim**-0.5).bfloat16()
    k, v = torch.randn(2, rows, layer.num_kv_heads, layer.head_dim, generator=generator).bfloat16()
    attend = attend_cached(cache, cached, commit, kernel)
    return lambda: attend(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)).transpose(0, 1).flatten(-2)


def operations(layer: LayerConfig, heads: int, cached: int, commit: int, canvas: int) -> int:
    """Multiplications and additions of both products, over the keys that each row sees."""
    cache = LayerCache(layer, cached + commit, torch.bfloat16, torch.device("meta"))
    pairs = canvas * (min(cached, cache.slots) + canvas)
    if commit:
        cache.keys = torch.empty(0)  # only its device is read
        pairs += int(causal_mask(cache, cached, commit).sum())
    return 4 * heads * layer.head_dim * pairs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cpu_attention", description=__doc__)
    parser.add_argument("--context", type=int, default=1024)
    context = parser.parse_args().context
    torch.set_num_threads(1)
    config = released_config(6)
    kinds = {layer.kind: layer for layer in config.layers}
    library = native_library()
    if not isinstance(library, NativeLibrary):
        raise SystemExit(f"there is no kernel for attention here: {library.reason}")
    kernel = library.attention
    chunk, canvas = min(context, PREFILL_CHUNK), config.canvas_length
    print(f"{cpu_name()}, load {os.getloadavg()[0]:.1f}, context {context:,}; the kernel: {kernel.path}")
    print(f"ms of one thread, least of {REPEATS}, and GFLOP/s\n{'':34}{'torch':>18}{'kernel':>18}")
    cases = {
        f"step, {canvas} rows": (context, 0, canvas),
        f"prompt, last {chunk:,} rows": (context - chunk, chunk, 0),
    }
    for name, rows in cases.items():
        for kind, layer in kinds.items():
            ways = [attends(layer, config.num_heads, *rows, way) for way in (None, kernel)]
            with torch.inference_mode():
                taken = milliseconds(ways)
            count = operations(layer, config.num_heads, *rows)
            columns = "".join(f"{least:11.1f}{count / least / 1e6:7.0f}" for least in taken)
            print(f"{f'{name}, {kind}':34}{columns}")


if __name__ == "__main__":
    main()
