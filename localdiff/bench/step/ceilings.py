"""The best rates of this machine, measured: a large copy, and large matmuls.

Knows torch, the kernel in C and a clock; knows no model. A step is compared with these rates, not with a data sheet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from localdiff.bench.step.parts import waiter
from localdiff.bench.step.work import Work
from localdiff.failures import is_out_of_memory
from localdiff.load.devices import dtype_named
from quant.codecs import CODECS
from quant.cpu.linear import NativeLinear
from quant.cpu.native.support import native_library
from quant.modules import QuantLinear, QuantTensor
from quant.unsupported import Unsupported

_COPY_BYTES = 1 << 29
_LEAST_SECONDS = 0.05
_LARGEST = 8192
_LARGEST_OF_KERNEL = 2048
_REPEATS = 7
_QUEUED = 10
"""Runs that a GPU is given at once: a copy takes as long as some ten launches by the host, one of which would be
counted with a single copy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceilings:
    """Best rates seen.

    Attributes:
        copy_rate: bytes per second of a large copy, read and written bytes together.
        products: operations per second of large matmuls, by dtype of their factors; dtypes that the device cannot
            multiply are left out. For int8 on a CPU, by torch or by the kernel in C, whichever is faster: where there
            are no instructions for products of int8, torch computes them a hundred times as slowly.
    """

    copy_rate: float
    products: dict[str, float]

    def floor(self, work: Work, *, kinds: tuple[str, ...] = ("fp32", "bf16", "int8")) -> float:
        """Lower bound on the seconds of some work: moving its bytes, or its matmuls at the best rate."""
        best = max((rate for kind, rate in self.products.items() if kind in kinds), default=0.0)
        return max(work.nbytes / self.copy_rate, work.operations / best if best else 0.0)


def measure_ceilings(device: torch.device, *, copy_bytes: int = _COPY_BYTES, largest: int = _LARGEST) -> Ceilings:
    """Measures a device.

    Args:
        copy_bytes: size of the copy; it should be larger than any cache.
        largest: maximum number of rows and columns of a matmul.
    """
    products = {}
    for kind in ("fp32", "bf16", "int8"):
        rates = [_product_rate(kind, device, largest)]
        if kind == "int8" and device.type == "cpu":
            rates.append(_kernel_rate(min(largest, _LARGEST_OF_KERNEL)))
        if known := [rate for rate in rates if rate is not None]:
            products[kind] = max(known)
    return Ceilings(copy_rate=_copy_rate(device, copy_bytes), products=products)


def _copy_rate(device: torch.device, nbytes: int) -> float:
    source = torch.ones(nbytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * nbytes / _best(lambda: target.copy_(source), device)


def _product_rate(kind: str, device: torch.device, largest: int) -> float | None:
    """Operations per second of a square matmul that is large enough to take a while; None if the device cannot."""
    size, multiply = 512, torch._int_mm if kind == "int8" else torch.mm
    while True:
        left, right = _factor(kind, size, device), _factor(kind, size, device)
        try:
            seconds = _best(partial(multiply, left, right.t()), device)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            return None
        if seconds >= _LEAST_SECONDS or size >= largest:
            return 2 * size**3 / seconds
        size *= 2


def _kernel_rate(size: int) -> float | None:
    """Operations per second of a square product by the C kernel, rounding to int8 included; None without the kernel."""
    library = native_library()
    if isinstance(library, Unsupported):
        return None
    linear = QuantLinear(CODECS["int8"], size, size)
    linear.weight = QuantTensor.of(CODECS["int8"], torch.randn(size, size))
    return 2 * size**3 / _best(partial(NativeLinear(linear, library), torch.randn(size, size)), torch.device("cpu"))


def _factor(kind: str, size: int, device: torch.device) -> Tensor:
    if kind == "int8":
        return torch.randint(-127, 128, (size, size), dtype=torch.int8, device=device)
    return torch.randn(size, size, device=device).to(dtype_named(kind))


def _best(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of a few runs, without the first: what the machine can do, not what it often does."""
    wait, runs = waiter(device), _QUEUED if device.type == "cuda" else 1
    work()
    fastest = float("inf")
    for _ in range(_REPEATS):
        wait()
        began = time.perf_counter()
        for _ in range(runs):
            work()
        wait()
        fastest = min(fastest, (time.perf_counter() - began) / runs)
    return fastest
