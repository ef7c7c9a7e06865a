"""What the experts of a step wait for: their two products with one cost at a time taken away.

    as in a step             128 experts, 16 rows each on average
    codes of four experts    every block reads the codes of one of four, which the second-level cache holds
    one row in a block       hardly any activations are read, and results written
    both of these            what is left is decoding, products and waiting
    half of the blocks       and a quarter, and three quarters: programs fill the card's places in waves, and twice as
                             many should take twice as long

If leaving out a cost saves no time, the product does not wait for it. Only the first variant gives meaningful results.
No profiler is needed, which machines for rent often forbid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from quant.cuda.experts import Blocks, CudaExperts, sorted_pairs
from quant.cuda.rows import rows_for
from tests.bench.gpu_clock import REPEATS
from tests.bench.gpu_products import EXPERTS, ROWS, TOP_K, WIDTH, clock, random_experts, random_routing, random_rows
from tests.bench.gpu_results import Results

CODECS = ("nf4", "int8")
FEW = 4
"""Experts whose codes are meant to stay in the cache: 12 MB in nf4, 24 MB in int8."""
SHARES = {"a quarter": 0.25, "half": 0.5, "three quarters": 0.75}


@torch.inference_mode()
def limits(results: Results, device: torch.device) -> int:
    """Microseconds of gate and up, and of the down projection, starting from a cache that holds nothing of them."""
    torch.manual_seed(0)
    x, (ids, _) = random_rows(ROWS, WIDTH, device), random_routing(ROWS, device)
    print(f"experts of a layer, {ROWS} rows, median of {REPEATS}:")
    for codec in CODECS:
        _of(CudaExperts(random_experts(codec, device)), codec, x, ids, results)
    return 0


def _of(experts: CudaExperts, codec: str, x: Tensor, ids: Tensor, results: Results) -> None:
    blocks = sorted_pairs(ids, experts=EXPERTS, rows=experts.block_rows(x, ids.numel()))
    source, outputs = rows_for(x, experts.activations), x.new_empty(*ids.shape, WIDTH)
    hidden = experts.gated(source, blocks, TOP_K, x.dtype)
    products: dict[str, Callable[[Blocks], object]] = {
        "gate and up": lambda blocks: experts.gated(source, blocks, TOP_K, x.dtype),
        "down": lambda blocks: experts.outputs_of(hidden, blocks, outputs),
    }
    for product, work in products.items():
        for name, changed in _variants(blocks).items():
            clock("limits", f"{codec}, {product}, {name}", partial(work, changed), results)


def _variants(blocks: Blocks) -> dict[str, Blocks]:
    """The blocks of a step, and variants of them that each lack one cost, or both."""
    used = blocks.experts >= 0
    few = torch.where(used, blocks.experts % FEW, -1)
    one = blocks.counts.clamp(max=1)
    place = torch.arange(len(blocks), device=used.device)
    parts = {
        f"{share} of the blocks": replace(blocks, experts=torch.where(place < part * used.sum(), blocks.experts, -1))
        for share, part in SHARES.items()
    }
    return {
        "as in a step": blocks,
        "codes of four experts": replace(blocks, experts=few),
        "one row in a block": replace(blocks, counts=one),
        "both of these": replace(blocks, experts=few, counts=one),
        **parts,
    }
