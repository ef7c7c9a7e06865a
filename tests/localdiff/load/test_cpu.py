"""Fast modules and attention on a CPU: which models get them, and how much memory they may take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from localdiff.load import load_model, loader, memory_plan, open_weights, plan_memory
from localdiff.load.placement import Demand, Placement
from localdiff.model.cache import KVCache
from quant.cpu import choice
from quant.cpu.experts import CpuExperts
from quant.modules import QuantExperts
from quant.unsupported import Unsupported
from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import quantize
from tests.models.loaded import network_of
from tests.models.native import needs_native

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = write_checkpoint(QUANTIZABLE, tmp_path_factory.mktemp("source"))
    return quantize(source, tmp_path_factory.mktemp("made") / "4bit", "4bit")


def experts(directory: Path) -> list[type]:
    network = network_of(directory, torch.bfloat16)
    return [type(layer.experts) for layer in network.layers]


def test_modules_of_a_loaded_model_are_replaced_by_fast_ones(quantized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "fast")
    assert experts(quantized) == [CpuExperts] * 2
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "plain")
    assert experts(quantized) == [QuantExperts] * 2


def test_layers_that_are_read_anew_in_every_pass_stay_plain(quantized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "fast")
    placement = Placement(main=CPU, layers=(CPU, CPU), offloaded=(1,))
    monkeypatch.setattr("localdiff.load.placement.place", lambda *args, **kwargs: placement)
    assert experts(quantized) == [QuantExperts] * 2


def test_a_missing_compiler_is_told_once(
    quantized: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "fast")
    monkeypatch.setattr(choice, "native_library", lambda: Unsupported("there is no C compiler", "install one"))
    monkeypatch.setattr(choice, "has_int8_matmul", lambda: False)  # this recipe has int8 experts only, in two layers
    assert experts(quantized) == [CpuExperts] * 2
    (told,) = [record.getMessage() for record in caplog.records if "compiler" in record.getMessage()]
    assert told.startswith("there is no C compiler: experts are decoded before they are multiplied")
    assert told.endswith("; install one")
    caplog.clear()
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "auto")
    experts(quantized)  # too small for any of it
    assert not [record for record in caplog.records if "compiler" in record.getMessage()]


@needs_native
def test_attention_goes_through_the_kernel_and_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(QUANTIZABLE, head_dim=64, full_head_dim=128, canvas=16)
    weights = open_weights(write_checkpoint(spec, tmp_path / "source"))
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "fast")
    monkeypatch.setattr(choice, "has_amx", lambda: False)  # a CPU that has it leaves attention to torch
    logits = []
    for value in ("auto", "off"):
        monkeypatch.setenv("LOCALDIFF_CPU_NATIVE", value)
        network = load_model(plan_memory(weights, CPU, torch.bfloat16)).network
        assert (network.attention_kernel is None) == (value == "off")
        cache = KVCache(network.config, 64, torch.bfloat16, CPU)
        with torch.inference_mode():
            network.encode(torch.arange(30), cache)
            logits.append(network.denoise(torch.arange(16), cache).float())
    fast, plain = logits
    assert 0 < float((fast - plain).norm()) < 0.03 * float(plain.norm()), "both round to bf16, in another order"


@pytest.mark.parametrize("more", [None, -1, 0, 12_345])
def test_they_may_take_what_is_free_beside_files_cache_and_buffers(
    quantized: Path, more: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals: list[int] = []
    spares: list[int | None] = []

    def place(demand: Demand, *_: object, **__: object) -> Placement:
        totals.append(demand.account.total)
        return Placement(main=CPU, layers=(CPU, CPU))

    monkeypatch.setattr("localdiff.load.placement.place", place)
    monkeypatch.setattr(loader, "use_cpu_modules", lambda network, *, spare, progress: spares.append(spare))
    experts(quantized)
    files = sum(tensor.nbytes for path in quantized.glob("*.safetensors") for tensor in load_file(path).values())
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: None if more is None else files + totals[0] + more)
    experts(quantized)
    assert spares[1] == (None if more is None else max(0, more))
