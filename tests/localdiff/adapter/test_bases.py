"""An adapter adds the same terms to whatever computes a product: quantized, fast, static or recorded modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from localdiff.adapter import add_adapter, save_adapter
from localdiff.adapter.attach import attach, terms_of
from localdiff.adapter.lowrank import LowRank, Terms
from localdiff.adapter.modules import AdaptedExperts, AdaptedLinear, RowKinds
from localdiff.denoising.static.program import Shape
from localdiff.engine import Engine
from localdiff.errors import ResourceError, WeightsError
from localdiff.events import BlockCommitted, RunFinished
from localdiff.load import Placement
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import GenerateOptions
from quant.codecs import CODECS
from quant.cpu.experts import CpuExperts
from quant.cpu.products import DecodedProduct
from quant.modules import QuantExperts, QuantLinear, QuantTensor, RoutedExperts
from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import quantize
from tests.gpu.kernels import DEVICE
from tests.models import tiny
from tests.models.adapters import EVERYTHING, hidden, randomize
from tests.models.loaded import network_of
from tests.models.numberless import on_card, run_step
from tests.models.steps import denoiser_of

CPU = torch.device("cpu")
SPEC = replace(QUANTIZABLE, layers="ssf", seed=31)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(SPEC, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def adapter(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the plain weights, with different terms for encoder and for canvas rows."""
    directory = tmp_path_factory.mktemp("adapter")
    network = network_of(source)
    randomize(add_adapter(network, EVERYTHING, rank=2, alpha=3))
    apart = {(side, path): term for side, path, term in terms_of(network)}
    network = network_of(source)
    attach(
        network,
        {
            (side, path): LowRank(term.lora_A.detach() * (1.5 if side == "encoder" else 1), term.lora_B.detach(), 0.5)
            for (side, path), term in apart.items()
        },
    )
    save_adapter(network, directory, base="tiny")
    return directory


def decoded(network: DiffusionGemma, source: Path) -> DiffusionGemma:
    """The plain model with the decoded weights of a quantized one."""
    plain = network_of(source)
    weights = {
        path: module.decode(torch.float32)
        for path, module in network.named_modules()
        if isinstance(module, QuantTensor)
    }
    for name, parameter in plain.named_parameters():
        if name in weights:
            parameter.data = weights[name]
    return plain


@pytest.mark.parametrize("recipe", ["4bit", "4bit-small", "mixed", "int8"])
def test_a_quantized_base_gets_the_same_terms(
    recipe: str, source: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "plain")
    quantized = quantize(source, tmp_path / recipe, recipe)
    expected = decoded(network_of(quantized), source)
    attach(expected, {(side, path): term for side, path, term in terms_of(network_of(source, adapter=adapter))})
    found = network_of(quantized, adapter=adapter)
    assert isinstance(found.layers[1].experts, AdaptedExperts)
    assert isinstance(found.layers[1].experts.base, QuantExperts)
    assert any(isinstance(module, AdaptedLinear) and isinstance(module.base, QuantLinear) for module in found.modules())
    for one, other in zip(hidden(found), hidden(expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_fast_modules_of_a_processor_get_them_too(
    source: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized = quantize(source, tmp_path / "quantized", "4bit")
    made = {}
    for path in ("plain", "fast"):
        monkeypatch.setenv("LOCALDIFF_CPU_PATH", path)
        made[path] = network_of(quantized, adapter=adapter)
    experts = made["fast"].layers[1].experts
    assert isinstance(experts, AdaptedExperts) and isinstance(experts.base, CpuExperts)
    without = network_of(quantized)
    plain, fast, bare = (hidden(network)[0] for network in (made["plain"], made["fast"], without))
    assert (fast - plain).norm() < 0.1 * (bare - plain).norm()


@pytest.mark.parametrize("apart", [True, False])
def test_experts_in_the_order_of_a_processor_equal_the_plain_ones(apart: bool) -> None:
    experts, width, inner = 4, 64, 128
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.3

    codec = CODECS["nf4"]
    plain = QuantExperts(gate_up_codec=codec, down_codec=codec, experts=experts, width=width, inner=inner)
    plain.gate_up_proj = QuantTensor.of(codec, draw(experts, 2 * inner, width))
    plain.down_proj = QuantTensor.of(codec, draw(experts, width, inner))
    products = (DecodedProduct(tensor, torch.float32) for tensor in (plain.gate_up_proj, plain.down_proj))
    fast = CpuExperts(*products, experts)

    def term(inputs: int, outputs: int) -> Terms:
        one, other = (LowRank(draw(experts, 3, inputs), draw(experts, outputs, 3), 0.7) for _ in range(2))
        return Terms(one, other if apart else one)

    gate_up, down = term(width, 2 * inner), term(inner, width)
    kinds = RowKinds()
    kinds._before(plain, (None, torch.arange(9) >= 4))
    x, index = draw(9, width), torch.tensor([[0, 2], [1, 0], [3, 2]] * 3)
    weight = torch.rand(9, 2, generator=generator)
    with torch.no_grad():
        expected = AdaptedExperts(plain, gate_up, down, kinds)(x, index, weight)
        found = AdaptedExperts(fast, gate_up, down, kinds)(x, index, weight)
        assert not torch.allclose(expected, plain(x, index, weight), atol=0.1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_layers_in_host_memory_are_refused(source: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Placement(main=CPU, layers=(CPU,) * 3, offloaded=(1, 2))
    monkeypatch.setattr("localdiff.load.placement.place", lambda *_, **__: outside)
    with pytest.raises(ResourceError, match="needs all layers on the device, and 2 of 3 do not fit there") as caught:
        network_of(source, adapter=adapter)
    assert caught.value.hint


def test_a_module_that_takes_no_terms_is_named() -> None:
    class Fused(RoutedExperts):
        def forward(self, x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
            return x

    network = tiny.model()
    network.layers[1].experts = Fused()
    term = LowRank(torch.zeros(4, 2, 32), torch.zeros(4, 32, 2), 1.0)
    with pytest.raises(ValueError, match=r"'layers\.1\.experts' \(Fused\) takes no adapter hook"):
        attach(network, {("decoder", "layers.1.experts.gate_up_proj"): term})


def whole_run(engine: Engine) -> list[tuple[int, ...]]:
    # Two steps per block: with random weights each step makes a rounding error ten times as large.
    events = engine.generate([12, 14, 15, 9, 26], GenerateOptions(seed=3, max_tokens=24, context_size=64, steps=2))
    return [event.token_ids for event in events if isinstance(event, BlockCommitted | RunFinished)]


@pytest.mark.usefixtures("attention_in_torch")
@pytest.mark.parametrize("rows", ["both", "encoder", "decoder"])
def test_static_steps_and_fused_commits_compute_the_same(tmp_path: Path, rows: str) -> None:
    network = tiny.model()
    bare = whole_run(tiny.engine(tmp_path, network=tiny.model()))
    names = [name for name in EVERYTHING if rows != "encoder" or "conditioning" not in name]
    randomize(add_adapter(network, names, rank=2, alpha=8, rows=rows), scale=0.5)  # type: ignore[arg-type]
    network.requires_grad_(False)
    engine = tiny.engine(tmp_path, network=network)
    plain = whole_run(engine)
    assert plain != bare
    engine = tiny.engine(tmp_path, network=network)
    engine.denoiser = denoiser_of(network, static=True, fuses_commits=True)
    assert whole_run(engine) == plain


@pytest.fixture
def _without_numbers() -> Iterator[None]:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        yield


@pytest.mark.usefixtures("_without_numbers")
@pytest.mark.parametrize("rows", ["both", "encoder", "decoder"])
def test_terms_beside_linear_layers_wait_for_nothing(rows: str) -> None:
    """This lets a step with them be recorded as a CUDA graph."""
    network = on_card(tiny.config())
    names = [name for name in EVERYTHING if "experts" not in name]
    for parameter in add_adapter(network, names, rank=2, alpha=2, rows=rows):  # type: ignore[arg-type]
        parameter.data = parameter.data.to(torch.bfloat16)
    assert run_step(network, Shape(commit_rows=tiny.CANVAS, sampled=True)).device.type == DEVICE.type


def test_passes_of_two_threads_do_not_mix_their_rows() -> None:
    network = tiny.model()
    randomize(add_adapter(network, ["q_proj", "experts.down_proj"], rank=2, alpha=8, rows="decoder"))

    def passes(workers: int, commits: Sequence[int]) -> list[torch.Tensor]:
        # On some CPUs a sum depends on how many threads share it.
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(lambda commit: hidden(network, commit=commit)[0], commits))

    commits = [3, 9] * 15
    expected = passes(1, commits[:2]) * 15
    assert all(torch.equal(found, alone) for found, alone in zip(passes(2, commits), expected, strict=True))


def test_the_engine_says_what_was_added(source: Path, tmp_path: Path, demo_adapter: Callable[[Path], Path]) -> None:
    directory = demo_adapter(tmp_path / "quiet")
    engine = Engine.load("demo", device="cpu", adapter=str(directory))
    assert engine.identity.adapter == str(directory)
    assert engine.identity.adapter_directory == directory
    assert any(terms_of(engine.model))
    with pytest.raises(WeightsError):
        Engine.load(str(source), device="cpu", adapter=str(directory))
    tensors, config = directory / "adapter_model.safetensors", directory / "adapter_config.json"
    save_file(load_file(tensors), tensors)  # without what tells its base by its weights
    config.write_text(config.read_text().replace('"demo"', '"owner/other"'))
    with pytest.raises(WeightsError, match="was trained on `owner/other`, and the model is `demo`"):
        Engine.load("demo", device="cpu", adapter=str(directory))


@pytest.fixture
def demo_adapter() -> Callable[[Path], Path]:
    def make(directory: Path) -> Path:
        network = Engine.load("demo", device="cpu").model
        randomize(add_adapter(network, ["q_proj"], rank=1, alpha=1), scale=0.01)
        save_adapter(network, directory, base="demo")
        return directory

    return make
