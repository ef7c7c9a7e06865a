"""Memory: what the system reports, and whose peak it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from localdiff.bench.step.memory import forget_peak, memory_use

CPU = torch.device("cpu")


def status(folder: Path, peak: int) -> Path:
    file = folder / "status"
    file.write_text(f"Name:\tx\nVmHWM:\t{peak} kB\nRssAnon:\t7 kB\nRssFile:\t3 kB\n")
    return file


def test_what_the_system_says(tmp_path: Path) -> None:
    use = memory_use(CPU, status(tmp_path, 20))
    assert (use.peak, use.anonymous, use.mapped, use.device_peak) == (20 * 1024, 7 * 1024, 3 * 1024, None)


def test_a_peak_of_the_work_before_is_not_said(tmp_path: Path) -> None:
    """Where the system cannot reset its peak, only a higher peak is known to be new."""
    remembered = forget_peak(CPU, status(tmp_path, 20), tmp_path / "no" / "such")
    assert remembered == 20 * 1024
    assert memory_use(CPU, status(tmp_path, 20), remembered=remembered).peak is None
    assert memory_use(CPU, status(tmp_path, 21), remembered=remembered).peak == 21 * 1024


def test_the_peak_of_a_gpu_is_what_its_allocator_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the work begins, 3,000 bytes of that are cached and unused; later, 500 belong to graphs, not to tensors."""
    gpu, held = torch.device("cuda", 1), {"now": 4_000, "peak": 9_000}

    def grow(by: int) -> None:
        held["now"] += by
        held["peak"] = max(held.values())

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: grow(-3_000))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: held.update(peak=held["now"]))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: held["peak"] - 500)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: held["peak"])
    forget_peak(gpu, status(tmp_path, 20), tmp_path / "clear")
    grow(2_500)
    assert memory_use(gpu, status(tmp_path, 20)).device_peak == 3_500


@pytest.mark.skipif(sys.platform != "linux", reason="another system's peak stays")
def test_a_peak_is_forgotten() -> None:
    large = torch.ones(1 << 28, dtype=torch.uint8)
    del large
    before = memory_use(CPU).peak
    if forget_peak(CPU):
        pytest.skip("this system does not let a process forget its peak")
    after = memory_use(CPU).peak
    assert before is not None and after is not None
    assert after < before - (1 << 27)
