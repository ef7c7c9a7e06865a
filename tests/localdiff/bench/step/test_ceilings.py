"""Ceilings: positive rates from small sizes, and floors from rates."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from localdiff.bench.step import ceilings
from localdiff.bench.step.ceilings import Ceilings, measure_ceilings
from localdiff.bench.step.work import Work
from quant.cpu.native.support import native_library
from quant.unsupported import Unsupported

KNOWN = Ceilings(copy_rate=100.0, products={"fp32": 10.0, "bf16": 20.0, "int8": 40.0})


@pytest.mark.parametrize(
    ("work", "kinds", "seconds"),
    [
        (Work(1000, 40), None, 10.0),
        (Work(100, 400), None, 10.0),
        (Work(100, 400), ("fp32", "bf16"), 20.0),
        (Work(0, 400), ("fp32",), 40.0),
        (Work(500, 400), ("fp8",), 5.0),
        (Work(0, 0), None, 0.0),
    ],
)
def test_a_floor_is_the_larger_of_moving_and_multiplying(
    work: Work, kinds: tuple[str, ...] | None, seconds: float
) -> None:
    assert (KNOWN.floor(work) if kinds is None else KNOWN.floor(work, kinds=kinds)) == seconds


def test_a_cpu_can_copy_and_multiply() -> None:
    measured = measure_ceilings(torch.device("cpu"), copy_bytes=1 << 16, largest=64)
    assert measured.copy_rate > 0
    assert {"fp32", "bf16"} <= set(measured.products)
    assert all(rate > 0 for rate in measured.products.values())


@pytest.mark.parametrize(("device", "runs"), [("cpu", 1), ("cuda", 10)])
def test_a_gpu_is_given_several_runs_at_once(device: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large GPU a launch takes a tenth of the time of a copy: waiting for each copy would count both."""
    done, waits = list[int](), list[int]()
    monkeypatch.setattr(ceilings, "waiter", lambda _: lambda: waits.append(len(done)))
    monkeypatch.setattr(ceilings, "time", SimpleNamespace(perf_counter=lambda: float(len(done))))
    assert ceilings._best(lambda: done.append(1), torch.device(device)) == 1.0, "seconds of one run"
    assert waits[:4] == [1, 1 + runs, 1 + runs, 1 + 2 * runs], "the first run is not timed"


def test_a_product_that_a_device_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("not here")

    monkeypatch.setattr(ceilings.torch, "_int_mm", refuse)
    monkeypatch.setattr(ceilings, "native_library", lambda: Unsupported("not here", ""))
    assert "int8" not in measure_ceilings(torch.device("cpu"), copy_bytes=1 << 16, largest=64).products


def test_memory_that_runs_out_is_no_missing_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 536870912 bytes")

    monkeypatch.setattr(ceilings.torch, "_int_mm", refuse)
    with pytest.raises(RuntimeError, match="can't allocate"):
        measure_ceilings(torch.device("cpu"), copy_bytes=1 << 16, largest=64)


def test_what_the_kernel_multiplies_faster_than_torch_is_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a step on a CPU with only AVX2 would take less than its lower bound."""
    if isinstance(native_library(), Unsupported):
        pytest.skip("the kernel in C does not run on this machine")
    monkeypatch.setattr(ceilings, "_product_rate", lambda *_: 1.0)
    products = measure_ceilings(torch.device("cpu"), copy_bytes=1 << 16, largest=64).products
    assert products["fp32"] == products["bf16"] == 1.0 < products["int8"]
    monkeypatch.setattr(ceilings, "_product_rate", lambda *_: 1e30)
    assert measure_ceilings(torch.device("cpu"), copy_bytes=1 << 16, largest=64).products["int8"] == 1e30
