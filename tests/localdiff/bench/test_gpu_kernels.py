"""Kernels of a step, from what a profiler hands over."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from localdiff.bench.step.measure import Stopwatch
from tests.bench import gpu_kernels
from tests.bench.gpu_kernels import EACH_STEP, Share, kernels, shares_of
from tests.bench.gpu_results import Results
from tests.localdiff.bench.step.small import small_subject


def seen(key: str, count: int, microseconds: float, device: DeviceType = DeviceType.CUDA) -> Any:
    return SimpleNamespace(key=key, count=count, self_device_time_total=microseconds, device_type=device)


def test_shares_are_of_one_step() -> None:
    """Steps are counted by a kernel that each launches once, whatever Triton appends to its name.

    Launches on the host are none of the card's.
    """
    found = shares_of(
        [
            seen("cudaGraphLaunch", 5, 0, DeviceType.CPU),
            seen(f"{EACH_STEP}_0d1d", 4, 40),
            seen("linear_kernel", 240, 2400),
            seen("linear_kernel", 240, 1200),
        ]
    )
    assert found == [
        Share(name="linear_kernel", launches=120, microseconds=900),
        Share(name=f"{EACH_STEP}_0d1d", launches=1, microseconds=10),
    ]


def test_the_steps_of_a_block_behind_a_context_are_profiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a card the profiler sees nothing, so that what it would see is made up."""
    blocks: list[tuple[int, int]] = []
    block_of = Stopwatch.block_of

    def watched(self: Stopwatch, denoiser: Any, steps: int) -> Any:
        blocks.append((self._cache.length, steps))
        return block_of(self, denoiser, steps)

    class Profiled:
        def __init__(self, **_: Any) -> None:
            """Whatever is asked for."""

        def __enter__(self) -> Profiled:
            return self

        def __exit__(self, *_: object) -> None:
            """Sees nothing."""

        def key_averages(self) -> list[Any]:
            return [seen(EACH_STEP, 2, 40), seen("linear_kernel", 24, 960)]

    monkeypatch.setattr(gpu_kernels, "WARM_UP_REPLAYED", 1)
    monkeypatch.setattr(gpu_kernels, "random_subject", lambda **_: lambda _: small_subject())
    monkeypatch.setattr(Stopwatch, "block_of", watched)
    monkeypatch.setattr(torch.profiler, "profile", Profiled)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    results = Results(tmp_path / "results.jsonl")
    assert kernels("4bit", 20, 2, results) == 0
    assert blocks == [(20, 1 + 2)]
    assert [(line["name"], line["total_microseconds"]) for line in results.lines()] == [
        ("linear_kernel", 480),
        (EACH_STEP, 20),
    ]
    assert "linear_kernel" in capsys.readouterr().out
    monkeypatch.setattr(Profiled, "key_averages", lambda _: [])
    assert kernels("4bit", 20, 2, results) == 1


def test_without_a_step_there_is_nothing_to_tell() -> None:
    assert shares_of([seen("linear_kernel", 240, 2400)]) == []
