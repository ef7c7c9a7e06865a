"""`python -m tests.bench.expert_decode`: where the time of a layer's experts goes on a CPU.

All 128 experts of a layer of the released size, with 16 rows each, as a canvas of 256 rows and top-8 routing gives
them: NF4 decoding in bitsandbytes' library; the products alone with one decoded weight; both of these with every
operation split over the threads, both with experts shared out among the threads, the CPU path without a C compiler; the
native kernel, the path with one; and bitsandbytes' own product from packed 4-bit weights.
Then linear layers in int8, 256 rows each, in oneDNN's layout and with the native kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pytest
import torch
from torch import Tensor, nn

from localdiff.machine.hardware import cpu_name
from quant.codecs import CODECS
from quant.codecs.codec import GROUP
from quant.cpu.bitsandbytes_library import nf4_library
from quant.cpu.linear import Int8Linear, LastRows, NativeLinear
from quant.cpu.native.support import native_library
from quant.cpu.products import DecodedProduct, ExpertProduct, NativeProduct
from quant.modules import QuantLinear, QuantTensor
from quant.unsupported import Unsupported

EXPERTS, ROWS, REPEATS = 128, 16, 3
CANVAS, LINEAR = 256, ((4096, 2816), (2816, 4096), (2112, 2816), (2816, 2112))
SHAPES = {"gate and up": (1408, 2816), "down": (2816, 704)}


Work: TypeAlias = Callable[[int], object]
"""What is done for one expert."""


def milliseconds(layer: Callable[[], object]) -> float:
    """Least of a few runs, after one that warms up."""
    taken = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        layer()
        taken.append(1e3 * (time.perf_counter() - began))
    return min(taken[1:])


def one_by_one(work: Work) -> Callable[[], None]:
    """Does the work for a layer's experts one after another."""

    def layer() -> None:
        for expert in range(EXPERTS):
            work(expert)

    return layer


def random_experts(out: int, width: int) -> QuantTensor:
    """NF4 weights `[128, out, width]`, any codes and scales."""
    with torch.device("meta"):
        tensor = QuantTensor(CODECS["nf4"], (EXPERTS, out, width))
    tensor.codes = torch.randint(0, 256, (EXPERTS, out, width // 2), dtype=torch.uint8)
    tensor.scales = (torch.rand(EXPERTS, out, width // GROUP) * 0.02).bfloat16()
    return tensor


def whole_layer(product: ExpertProduct, width: int) -> Callable[[], Tensor]:
    """A product over rows in the order of their experts."""
    rows = torch.randn(EXPERTS * ROWS, width).bfloat16()
    return lambda: product(rows, None, [ROWS] * EXPERTS)


def packed_product(weight: Tensor, rows: Tensor) -> Work:
    """bitsandbytes' product of bf16 rows with a weight that it packed for CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "kernels", None)  # with this package, bitsandbytes would download code
        from bitsandbytes.functional import _convert_weight_packed_for_cpu, quantize_4bit

    packed, state = _convert_weight_packed_for_cpu(*quantize_4bit(weight, blocksize=GROUP, quant_type="nf4"))
    multiply = torch.ops.bitsandbytes.gemv_4bit
    return lambda _expert: multiply(rows, packed, state.shape, state.absmax, state.code, state.blocksize)


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m tests.bench.expert_decode", description=__doc__).parse_args()
    library = nf4_library()
    if library is None:
        raise SystemExit("bitsandbytes' CPU library is not there")
    native = native_library()
    if isinstance(native, Unsupported):
        raise SystemExit(f"the native kernel is not there: {native}")
    print(
        f"{cpu_name()}, {torch.get_num_threads()} threads; ms for {EXPERTS} experts of {ROWS} rows, least of {REPEATS}"
    )
    print(f"{'':14}{'decode':>9}{'product':>9}{'split':>9}{'shared':>9}{'native':>9}{'packed':>9}")
    for name, (out, width) in SHAPES.items():
        experts = random_experts(out, width)
        columns = torch.randn(ROWS, width).bfloat16().t()
        decode = library.decoder(experts.codes, experts.scales, torch.bfloat16)
        weight = decode(0).clone()
        layers = (
            one_by_one(decode),
            one_by_one(lambda _, weight=weight, columns=columns: torch.mm(weight, columns)),  # type: ignore[misc]
            one_by_one(lambda expert, decode=decode, columns=columns: torch.mm(decode(expert), columns)),  # type: ignore[misc]
            whole_layer(DecodedProduct(experts, torch.bfloat16, library), width),
            whole_layer(NativeProduct(experts, native), width),
            one_by_one(packed_product(weight, columns.t())),
        )
        print(f"{name:14}" + "".join(f"{milliseconds(layer):9.0f}" for layer in layers))
    print(f"\nint8 linear layers, {CANVAS} rows{'oneDNN':>9}{'native':>9}")
    for out, width in LINEAR:
        linear = QuantLinear(CODECS["int8"], width, out)
        linear.weight = QuantTensor.of(CODECS["int8"], torch.randn(out, width))
        x = torch.randn(CANVAS, width).bfloat16()
        both: tuple[nn.Module, ...] = (Int8Linear(linear, LastRows()), NativeLinear(linear, native))
        print(f"{f'{out:,} × {width:,}':28}" + "".join(f"{milliseconds(partial(layer, x)):9.1f}" for layer in both))


if __name__ == "__main__":
    main()
