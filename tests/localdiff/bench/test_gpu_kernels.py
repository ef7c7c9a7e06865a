"""Kernels of a step, from the events of a profiler's trace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.bench.step.measure import Stopwatch
from tests.bench import gpu_kernels
from tests.bench.gpu_kernels import EACH_STEP, Compiled, Share, kernels, shares_of
from tests.bench.gpu_results import Results
from tests.localdiff.bench.step.small import small_subject


def seen(name: str, microseconds: float, grid: tuple[int, int] = (2, 22), registers: int = 128) -> dict[str, Any]:
    """A kernel as Kineto writes it, without the fields that nobody reads."""
    told = {
        "device": 0,
        "stream": 7,
        "registers per thread": registers,
        "shared memory": 32768,
        "grid": [*grid, 1],
        "block": [256, 1, 1],
        "est. achieved occupancy %": 17,
    }
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 17.25, "dur": microseconds, "args": told}


def kernel(name: str, grid: tuple[int, int] = (2, 22), registers: int = 128) -> Compiled:
    return Compiled(name=name, grid=(*grid, 1), block=(256, 1, 1), registers=registers, shared=32768)


def test_shares_are_of_one_step() -> None:
    """Steps are counted by a kernel that each launches once, whatever Triton appends to its name.

    Launches on the host, and annotations of what runs meanwhile, are not work of the card.
    """
    found = shares_of(
        [
            {"ph": "M", "name": "process_name", "ts": 0.0, "pid": 0, "tid": 0, "args": {"name": "python"}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 1.5, "dur": 8, "args": {"cbid": 311}},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "a step", "ts": 1.5, "dur": 5000},
            *(seen(f"{EACH_STEP}_0d1d", 10) for _ in range(4)),
            *(seen("linear_kernel", 5.5) for _ in range(480)),
        ]
    )
    assert found == [
        Share(kernel=kernel("linear_kernel"), launches=120, microseconds=660),
        Share(kernel=kernel(f"{EACH_STEP}_0d1d"), launches=1, microseconds=10),
    ]


def test_kernels_of_one_name_are_told_apart_by_what_they_were_compiled_for() -> None:
    """By grid, as for the head and a projection, and by number of registers, as for nf4 and int8."""
    found = shares_of(
        [
            seen(EACH_STEP, 1),
            *(seen("gate_up_kernel", 40, (144, 11)) for _ in range(28)),
            *(seen("gate_up_kernel", 60, (144, 11), registers=168) for _ in range(2)),
            *(seen("linear_kernel", 10, (2, 64)) for _ in range(25)),
            seen("linear_kernel", 300, (2, 2048)),
        ]
    )
    assert [(share.kernel, share.launches, share.microseconds) for share in found] == [
        (kernel("gate_up_kernel", (144, 11)), 28, 1120),
        (kernel("linear_kernel", (2, 2048)), 1, 300),
        (kernel("linear_kernel", (2, 64)), 25, 250),
        (kernel("gate_up_kernel", (144, 11), 168), 2, 120),
        (kernel(EACH_STEP), 1, 1),
    ]


def test_what_has_no_grid_is_counted_all_the_same() -> None:
    """A copy never has a grid, nor does a kernel of a profiler that reports none."""
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "dur": 2, "args": {"bytes": 8}}
    fill = {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 1.5}
    found = shares_of([seen(EACH_STEP, 1), copy, copy, fill, {"cat": "kernel", "name": "sum", "args": None}])
    assert [(share.kernel, share.launches, share.microseconds) for share in found] == [
        (Compiled(name="Memcpy DtoH (Device -> Pinned)"), 2, 4),
        (Compiled(name="Memset (Device)"), 1, 1.5),
        (kernel(EACH_STEP), 1, 1),
        (Compiled(name="sum"), 1, 0),
    ]


def test_a_trace_of_torch_is_read() -> None:
    """A trace of a CPU, which has the same form, and no work of a card."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        torch.ones(2).sum()
    events = gpu_kernels._traced(profiled)
    assert "aten::sum" in [event["name"] for event in events] and shares_of(events) == []


def test_the_steps_of_a_block_after_a_context_are_profiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a card the profiler sees nothing, so what it would see is made up."""
    blocks: list[tuple[int, int]] = []
    block_of = Stopwatch.block_of

    def watched(self: Stopwatch, denoiser: Any, steps: int) -> Any:
        blocks.append((self.cache.length, steps))
        return block_of(self, denoiser, steps)

    class Profiled:
        def __init__(self, **_: Any) -> None:
            """Accepts any options."""

        def __enter__(self) -> Profiled:
            return self

        def __exit__(self, *_: object) -> None:
            """Sees nothing."""

        def export_chrome_trace(self, path: str) -> None:
            events = [*(seen(EACH_STEP, 20) for _ in range(2)), *(seen("linear_kernel", 40) for _ in range(24))]
            Path(path).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    monkeypatch.setattr(gpu_kernels, "WARM_UP_REPLAYED", 1)
    monkeypatch.setattr(gpu_kernels, "full_size", lambda *_: small_subject())
    monkeypatch.setattr(Stopwatch, "block_of", watched)
    monkeypatch.setattr(torch.profiler, "profile", Profiled)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    results = Results(tmp_path / "results.jsonl")
    assert kernels("4bit", 20, 2, results) == 0
    assert blocks == [(20, 1 + 2)]
    assert [(line["name"], line["grid"], line["total_microseconds"]) for line in results.lines()] == [
        ("linear_kernel", [2, 22, 1], 480),
        (EACH_STEP, [2, 22, 1], 20),
    ]
    assert re.search(r"linear_kernel +2 × 22 +12\.0 × +40\.0 µs", capsys.readouterr().out)
    monkeypatch.setattr(gpu_kernels, "_traced", lambda _: [])
    assert kernels("4bit", 20, 2, results) == 1


def test_without_a_step_there_is_nothing_to_tell() -> None:
    assert shares_of([seen("linear_kernel", 2400)]) == []
