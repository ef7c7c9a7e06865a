"""Pages of mapped files are given back, and nothing else is."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from quant.codecs import CODECS
from quant.cpu import choice, memory
from quant.cpu.choice import use_cpu_modules
from quant.cpu.memory import release_pages
from quant.cpu.switches import CPU_PATH
from quant.modules import QuantLinear, QuantTensor

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone is asked")

PAGES = 64


def resident_file_bytes() -> int:
    """Bytes of files that count as this process' memory."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[2]) * mmap.PAGESIZE


def mapped(path: Path, tensor: torch.Tensor) -> torch.Tensor:
    save_file({"x": tensor}, path)
    with safe_open(path, framework="pt") as file:
        return file.get_tensor("x")


def test_a_mapped_tensor_goes_and_can_be_read_again(tmp_path: Path) -> None:
    values = torch.arange(PAGES * mmap.PAGESIZE, dtype=torch.int64)
    tensor = mapped(tmp_path / "x.safetensors", values)
    assert torch.equal(tensor, values)
    before = resident_file_bytes()
    given = release_pages([tensor])
    assert values.nbytes - 2 * mmap.PAGESIZE <= given <= values.nbytes
    assert before - resident_file_bytes() >= given // 2
    assert torch.equal(tensor, values)


def test_memory_of_the_process_itself_is_left_alone() -> None:
    values = torch.arange(PAGES * mmap.PAGESIZE)
    kept = values.clone()
    assert release_pages([values, torch.empty(0), torch.ones(1)]) == 0
    assert torch.equal(values, kept)


def test_neighbours_and_parts_with_gaps_are_left_alone(tmp_path: Path) -> None:
    tensor = mapped(tmp_path / "x.safetensors", torch.ones(4, 4 * mmap.PAGESIZE))
    assert release_pages([tensor[:, ::2]]) == 0
    assert release_pages([tensor[1]]) <= tensor[1].nbytes
    assert release_pages([tensor[0, :8]]) == 0


def test_where_the_system_is_another_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensor = mapped(tmp_path / "x.safetensors", torch.ones(PAGES * mmap.PAGESIZE))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert release_pages([tensor]) == 0


def test_without_proc_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensor = mapped(tmp_path / "x.safetensors", torch.ones(PAGES * mmap.PAGESIZE))
    monkeypatch.setattr(memory, "MAPS", str(tmp_path / "proc" / "self" / "maps"))
    assert release_pages([tensor]) == 0


def test_a_weight_that_was_made_anew_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not choice.has_int8_matmul():
        pytest.skip("no exact int8 product here")
    monkeypatch.setenv(CPU_PATH, "fast")
    stored = QuantTensor.of(CODECS["int8"], torch.randn(512, 4096))
    linear = QuantLinear(CODECS["int8"], 4096, 512)
    linear.weight.codes = mapped(tmp_path / "codes.safetensors", stored.codes)
    linear.weight.scales = mapped(tmp_path / "scales.safetensors", stored.scales)
    x = torch.randn(3, 4096)
    expected = linear(x)
    model = torch.nn.Sequential(linear)
    before = resident_file_bytes()
    use_cpu_modules(model)
    assert model[0] is not linear
    assert before - resident_file_bytes() >= stored.codes.nbytes // 2
    assert torch.allclose(model[0](x), expected, atol=0.05 * float(expected.abs().max()))
