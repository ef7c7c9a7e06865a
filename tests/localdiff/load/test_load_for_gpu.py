"""Models loaded as for GPUs, on a CPU with kernels in Triton's interpreter: streamed, and on two devices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

from localdiff.engine import Engine
from localdiff.events import BlockCommitted
from localdiff.load import LoadedModel, gpu, open_weights, plan_memory, streaming
from localdiff.load.placement import Placement
from localdiff.model.cache import KVCache
from localdiff.options import GenerateOptions
from quant.cuda import choice
from quant.cuda.experts import CudaExperts
from quant.cuda.linear import CudaLinear
from quant.cuda.parity import ParityError
from quant.modules import QuantExperts
from quant.unsupported import Unsupported
from tests.checkpoints.four_layers import SPEC, write_all
from tests.gpu.kernels import needs_interpreter
from tests.models.steps import denoiser_of

pytestmark = [needs_interpreter, pytest.mark.filterwarnings("ignore:divide by zero")]

CPU = torch.device("cpu")
SECOND = torch.device("cpu", 0)
"""The same CPU, which counts as a second device because of its index."""
PROMPT = [3, 14, 15, 9, 26, 5]
OPTIONS = GenerateOptions(seed=5, cap=2, context_size=64)
SPREAD = Placement(main=CPU, layers=(CPU, CPU, SECOND, SECOND))

Load: TypeAlias = Callable[..., LoadedModel]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)

    def loaded(directory: Path, placement: Placement, activations: str = "auto") -> LoadedModel:
        plan = replace(plan_memory(open_weights(directory), CPU, torch.float32, context=64), placement=placement)
        told: list[float] = []
        plan.skeleton.swap()
        plan.skeleton.assign(placement, lambda _, share: told.append(share))
        expectations = gpu.load_for_gpu(plan, lambda _, share: told.append(share), activations)
        assert told == sorted(told)
        assert told[-1] == 1
        network = plan.skeleton.network.requires_grad_(False).eval()
        return LoadedModel(network=network, placement=placement, expectations=expectations)

    return loaded


def with_streamed(*layers: int) -> Placement:
    return Placement(main=CPU, layers=(CPU,) * len(SPEC.layers), offloaded=layers, streamed=True)


def generate(engine: Engine, max_tokens: int) -> list[tuple[int, ...]]:
    events = engine.generate(PROMPT, replace(OPTIONS, max_tokens=max_tokens))
    return [event.token_ids for event in events if isinstance(event, BlockCommitted)]


@pytest.mark.parametrize(
    ("form", "placement", "parts", "max_tokens"),
    [
        ("4bit", with_streamed(0, 1, 2), {"static": True, "layer_ops": True}, 16),
        pytest.param("plain", with_streamed(2, 3), {"static": True, "layer_ops": True}, 8, marks=pytest.mark.slow),
        ("4bit", SPREAD, {}, 16),
    ],
    ids=["streamed", "streamed as published", "on two devices"],
)
def test_all_layers_multiply_through_kernels_and_give_the_same(
    directories: dict[str, Path],
    load: Load,
    form: str,
    placement: Placement,
    parts: dict[str, bool],
    max_tokens: int,
) -> None:
    """A block has eight tokens, and only the first of two is committed. There are few, as the interpreter is slow."""
    engine = Engine.load(str(directories[form]), device="cpu", dtype="fp32", context_size=64)
    expected = generate(engine, max_tokens)
    network = load(directories[form], placement).network
    assert all(type(layer.experts) is CudaExperts for layer in network.layers)
    assert form == "plain" or all(type(layer.self_attn.o_proj) is CudaLinear for layer in network.layers)
    engine.model = network
    engine.denoiser = denoiser_of(network, **parts, fuses_commits=True)
    assert generate(engine, max_tokens) == expected


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_kernels_of_streamed_layers_are_compared_with_the_layer_in_its_place(
    directories: dict[str, Path], load: Load
) -> None:
    """Only the first and the last layer are int8, and both are streamed."""
    loaded = load(directories["4bit"], with_streamed(0, 3))
    names = {expectation.name.split(" ")[0] for expectation in loaded.expectations}
    assert {"layers.1.experts", "layers.0.experts"} <= names
    (first, *_) = (one for one in loaded.expectations if one.name.startswith("layers.0.experts"))
    with torch.inference_mode():
        cache = KVCache(loaded.network.config, 32, torch.float32, loaded.placement.layers)
        loaded.network.encode(torch.tensor(PROMPT), cache)
    with pytest.raises(ParityError):  # the last layer is in its place now
        replace(first, present=nullcontext).check()
    assert first.check() < 0.01


def test_kernels_of_a_step_are_compared_with_the_layer_in_its_place(directories: dict[str, Path], load: Load) -> None:
    loaded = load(directories["4bit"], with_streamed(0, 1, 2, 3))
    denoiser = denoiser_of(loaded.network, layer_ops=True)
    with torch.inference_mode():
        cache = KVCache(loaded.network.config, 32, torch.float32, loaded.placement.layers)
        loaded.network.encode(torch.tensor(PROMPT), cache)
    for weight in loaded.network.layers[3].experts.weights():
        weight.view(torch.uint8).fill_(0xFF)  # NaN, should another layer be read in its place
    assert max(error for one in denoiser.comparisons() for error in one.errors().values()) < 0.01


def test_kernels_are_compared_on_each_device(directories: dict[str, Path], load: Load) -> None:
    """A compiler may be wrong for only one of them."""
    expectations = load(directories["int8"], SPREAD).expectations
    compared = {(one.name.split(" ")[0], one.device) for one in expectations if "experts" in one.name}
    assert compared == {("layers.0.experts", CPU), ("layers.2.experts", SECOND)}


def test_each_device_has_its_tiles_and_rounds_activations_where_they_are_to_be(
    directories: dict[str, Path], load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[torch.device] = []
    monkeypatch.setattr(gpu, "take_timed_tiles", tuned.append)
    assert not choice.rounds_activations(load(directories["4bit"], SPREAD).network)
    assert set(tuned) == {CPU, SECOND}
    assert choice.rounds_activations(load(directories["4bit"], SPREAD, "int8").network)


@pytest.mark.parametrize(
    ("without", "plain", "said"),
    [(SECOND, [False, False, True, True], "`cpu:0`: it is too old"), (CPU, [True] * 4, " it is too old")],
    ids=["second", "first"],
)
def test_a_device_without_kernels_computes_plainly_and_without_the_first_none_has_any(
    directories: dict[str, Path],
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    without: torch.device,
    plain: list[bool],
    said: str,
) -> None:
    """If kernels failed when they were tried, that is known only of the first one."""
    lack = Unsupported("it is too old", "use another")
    monkeypatch.setattr(choice, "why_unsupported", lambda device: lack if device == without else None)
    network = load(directories["4bit"], SPREAD).network
    assert [type(layer.experts) is QuantExperts for layer in network.layers] == plain
    assert f"{said}: experts are decoded one by one" in caplog.text
