"""Two layers at full width through a quantization and the loader: the memory account against real bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from localdiff.bench.step.memory import STATUS, memory_use
from localdiff.denoising.dynamic import dynamic_steps
from localdiff.diffusion.noise import SeededNoise
from localdiff.load import load_model, loader, open_weights, plan_memory
from localdiff.memory_account import MemoryAccount
from localdiff.model.cache import KVCache
from quant.files.manifest import read_manifest
from tests.checkpoints.full_width import write_full_width
from tests.checkpoints.quantized import quantize
from tests.models.held import held_by_cache, held_by_manifest
from tests.models.loaded import network_of
from tests.models.steps import block_of

CONTEXT = 8192
LAYERS = 2


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4.6 GB of random weights, and the 1.5 GB that `4bit-small` makes of them."""
    source = tmp_path_factory.mktemp("full-width")
    write_full_width(source, LAYERS)
    directory = quantize(source, tmp_path_factory.mktemp("made") / "4bit-small", "4bit-small")
    for file in source.glob("*.safetensors"):
        file.unlink()
    return directory


@pytest.fixture
def account(quantized: Path) -> MemoryAccount:
    return MemoryAccount.of(held_by_manifest(read_manifest(quantized)), context=CONTEXT)


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="asks the kernel for the anonymous memory of this process")
def test_the_account_is_what_is_held(quantized: Path, account: MemoryAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a CPU also holds for speed comes out of free memory, and is tested with its modules.
    monkeypatch.setattr(loader, "use_cpu_modules", lambda network, **_: None)
    monkeypatch.setattr(loader, "take_kernels", lambda *_: None)
    cpu = torch.device("cpu")
    before = memory_use(cpu).anonymous or 0
    network = network_of(quantized, torch.bfloat16, context=CONTEXT)
    taken = (memory_use(cpu).anonymous or 0) - before
    weights = sum(account.weights.values())
    assert weights == pytest.approx(sum(tensor.nbytes for tensor in network.state_dict().values()), rel=0.01)
    assert weights == pytest.approx(sum(file.stat().st_size for file in quantized.glob("*.safetensors")), rel=0.01)
    assert taken < 0.02 * weights, "the weights stay in their files"
    cache = KVCache(network.config, CONTEXT, torch.bfloat16, torch.device("cpu"))
    assert account.cache == pytest.approx(held_by_cache(cache), rel=0.01)


@pytest.mark.slow
@pytest.mark.gpu
def test_a_card_takes_what_the_account_says(quantized: Path, account: MemoryAccount) -> None:
    card = torch.device("cuda:0")
    before = torch.cuda.memory_allocated(card)
    network = load_model(plan_memory(open_weights(quantized), card, torch.bfloat16, context=CONTEXT)).network
    held = torch.cuda.memory_allocated(card) - before
    assert held == pytest.approx(sum(account.weights.values()), rel=0.01)
    cache = KVCache(network.config, CONTEXT, torch.bfloat16, card)
    with torch.inference_mode():
        network.encode(torch.arange(1024, device=card), cache)
    canvas = torch.randint(network.config.vocab_size, (network.config.canvas_length,), device=card)
    block = block_of(3)
    torch.cuda.reset_peak_memory_stats(card)
    assert len(list(dynamic_steps(network, cache, canvas, SeededNoise(0), block))) == 3
    peak = torch.cuda.max_memory_allocated(card) - before
    assert peak < account.total - account.slack
    assert peak > 0.8 * (account.total - account.slack)
