"""The memory of GPUs that have their own, and of those that share the machine's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from quant.gpus import gpu_memory, shares_host_memory

CARD = torch.device("cuda", 0)
GB = 1_000_000_000


@pytest.mark.parametrize(
    ("is_integrated", "free", "available", "expected"),
    [
        (0, 40 * GB, 110 * GB, 40 * GB),
        (1, 40 * GB, 110 * GB, 110 * GB),
        (1, 40 * GB, 30 * GB, 40 * GB),
        (1, 40 * GB, 140 * GB, 128 * GB),  # on a machine that keeps some memory from the GPU
        (1, 40 * GB, None, 40 * GB),
    ],
)
def test_cached_files_take_nothing_from_a_gpu_in_the_memory_of_the_machine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_integrated: int,
    free: int,
    available: int | None,
    expected: int,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 128 * GB))
    properties = SimpleNamespace(is_integrated=is_integrated)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    if available is not None:
        (tmp_path / "proc").mkdir()
        meminfo = f"MemTotal: {130 * GB // 1000} kB\nMemFree: {free // 1024} kB\nMemAvailable: {available // 1024} kB\n"
        (tmp_path / "proc/meminfo").write_text(meminfo)
    assert gpu_memory(CARD, tmp_path) == (expected, 128 * GB)


def test_nothing_is_known_of_the_memory_of_amds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not shares_host_memory(CARD)
