"""`python -m tests.bench.expert_decode`: where the time of a layer's experts goes on a processor.

All 128 experts of a layer of the released size, 16 rows each, which is what a canvas of 256 rows and top-8 routing
gives them: decoding NF4 with bitsandbytes' library, the products alone with one decoded weight, both as the CPU path
does them, and bitsandbytes' own product from packed 4-bit weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from localdiff.hardware import cpu_name
from quant.codec import GROUP
from quant.cpu.bitsandbytes_library import nf4_library

EXPERTS, ROWS, REPEATS = 128, 16, 3
SHAPES = {"gate and up": (1408, 2816), "down": (2816, 704)}


Work: TypeAlias = Callable[[int], object]
"""What is done for one expert."""


def milliseconds(work: Work) -> float:
    """Least of a few runs over all experts, after one that warms up."""
    taken = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        for expert in range(EXPERTS):
            work(expert)
        taken.append(1e3 * (time.perf_counter() - began))
    return min(taken[1:])


def plain_product(weight: Tensor, rows: Tensor) -> Work:
    """A decoded weight times rows, the weight first."""
    columns = rows.t()
    return lambda _expert: torch.mm(weight, columns)


def decoded_product(decode: Callable[[int], Tensor], rows: Tensor) -> Work:
    """The same, decoded anew for every expert."""
    columns = rows.t()
    return lambda expert: torch.mm(decode(expert), columns)


def packed_product(weight: Tensor, rows: Tensor) -> Work:
    """bitsandbytes' product of bf16 rows with a weight that it packed for processors."""
    from bitsandbytes.functional import _convert_weight_packed_for_cpu, quantize_4bit

    packed, state = _convert_weight_packed_for_cpu(*quantize_4bit(weight, blocksize=GROUP, quant_type="nf4"))
    multiply = torch.ops.bitsandbytes.gemv_4bit
    return lambda _expert: multiply(rows, packed, state.shape, state.absmax, state.code, state.blocksize)


def main() -> None:
    """Measure and print."""
    library = nf4_library()
    if library is None:
        raise SystemExit("bitsandbytes' CPU library is not there")
    print(f"{cpu_name()}, {torch.get_num_threads()} threads; ms for {EXPERTS} experts of {ROWS} rows")
    print(f"{'':14}{'decode':>9}{'product':>9}{'both':>9}{'packed':>9}")
    for name, (out, width) in SHAPES.items():
        codes = torch.randint(0, 256, (EXPERTS, out, width // 2), dtype=torch.uint8)
        scales = (torch.rand(EXPERTS, out, width // GROUP) * 0.02).bfloat16()
        rows = torch.randn(ROWS, width).bfloat16()
        decode = library.decoder(codes, scales, torch.bfloat16)
        weight = decode(0).clone()
        works = (
            decode,
            plain_product(weight, rows),
            decoded_product(decode, rows),
            packed_product(weight, rows),
        )
        figures = [milliseconds(work) for work in works]
        print(f"{name:14}" + "".join(f"{figure:9.0f}" for figure in figures))


if __name__ == "__main__":
    main()
