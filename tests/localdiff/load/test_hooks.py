"""Offloaded layers: a tiny budget on a CPU, with accelerate's own hooks and its `meta` device.

On a card such layers are streamed, in tests marked `gpu`.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.denoising import Denoiser
from localdiff.engine import Engine
from localdiff.errors import ResourceError
from localdiff.events import BlockCommitted
from localdiff.load import LoadedModel, StoredWeights, load_model, open_weights, plan_memory, streaming
from localdiff.load.hooks import dispatch
from localdiff.load.placement import Placement
from localdiff.load.skeleton import Skeleton
from localdiff.model.cache import KVCache
from localdiff.model.residence import Residence
from localdiff.options import GenerateOptions
from quant.cuda import choice
from quant.cuda.experts import CudaExperts
from tests.checkpoints.four_layers import SPEC, write_all
from tests.gpu.kernels import needs_interpreter
from tests.models import tiny
from tests.models.steps import denoiser_of

CPU, META = torch.device("cpu"), torch.device("meta")
GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
PROMPT = [3, 14, 15, 9, 26, 5]
OPTIONS = GenerateOptions(seed=5, max_tokens=24, context_size=64)


@pytest.fixture(autouse=True)
def everything_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams even the small layers of tests."""
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedModel]:
    """Loads weights with the test's own placement, whatever memory there is."""

    def load(weights: StoredWeights, device: torch.device, offloaded: tuple[int, ...]) -> LoadedModel:
        found = Placement(main=device, layers=(device,) * len(SPEC.layers), offloaded=offloaded)
        monkeypatch.setattr("localdiff.load.placement._place", lambda *_, **__: found)
        return load_model(plan_memory(weights, device, torch.float32))

    return load


def logits(loaded: LoadedModel) -> torch.Tensor:
    network, device = loaded.network, loaded.placement.main
    cache = KVCache(network.config, 32, torch.float32, loaded.placement.layers)
    with torch.inference_mode():
        network.encode(torch.tensor(PROMPT, device=device), cache)
        canvas = torch.arange(SPEC.canvas, device=device)
        first = network.denoise(canvas, cache)
        soft = network.soft_embedding(first, first.logsumexp(dim=-1))
        return network.denoise(canvas, cache, soft).cpu()


def assert_same(found: torch.Tensor, expected: torch.Tensor, device: str) -> None:
    """The same bits on a CPU; on a card kernels compute the layers that stay, and sum in their own order."""
    tolerance = 0.0 if device == "cpu" else 1e-4
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("offloaded", [(3,), (1, 2, 3), (0, 1, 2, 3)], ids=len)
@pytest.mark.parametrize("form", ["plain", "4bit", "int8"])
def test_offloaded_layers_compute_what_kept_ones_do(
    directories: dict[str, Path],
    placed: Callable[..., LoadedModel],
    form: str,
    offloaded: tuple[int, ...],
    device: str,
) -> None:
    weights = open_weights(directories[form])
    kept, moved = (placed(weights, torch.device(device), layers) for layers in ((), offloaded))
    assert_same(logits(moved), logits(kept), device)


@pytest.mark.parametrize("form", ["plain", "4bit"])
def test_between_passes_an_offloaded_layer_holds_nothing(
    directories: dict[str, Path], placed: Callable[..., LoadedModel], form: str
) -> None:
    loaded = placed(open_weights(directories[form]), CPU, (2, 3))
    for _ in range(2):
        for index, layer in enumerate(loaded.network.layers):
            devices = {tensor.device for tensor in layer.state_dict().values()}
            assert devices == {META if index in (2, 3) else CPU}
        logits(loaded)


@pytest.mark.parametrize("form", ["plain", "4bit"])
def test_a_pass_that_fails_leaves_no_layer_behind(
    directories: dict[str, Path],
    placed: Callable[..., LoadedModel],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    """There is memory for only one of them, so the next pass would run out of it, too."""
    loaded = placed(open_weights(directories[form]), CPU, (1, 2))
    expected = logits(loaded)
    for index in (1, 2):
        layer = loaded.network.layers[index]
        with monkeypatch.context() as patch:
            patch.setattr(layer.experts, "forward", lambda *_, **__: pytest.fail("no memory", pytrace=False))
            with pytest.raises(pytest.fail.Exception):
                logits(loaded)
        assert {tensor.device for layer in loaded.network.layers[1:3] for tensor in layer.state_dict().values()} == {
            META
        }
    assert torch.equal(logits(loaded), expected)


def test_two_threads_pass_one_layer_one_after_the_other(
    directories: dict[str, Path], placed: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thread to leave the layer empties it, for the other one, too."""
    loaded = placed(open_weights(directories["plain"]), CPU, (1, 2))
    expected, found = logits(loaded), list[torch.Tensor]()
    other = threading.Thread(target=lambda: found.append(logits(loaded)))
    experts = loaded.network.layers[1].experts
    compute = experts.forward

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(experts, "forward", compute)
        other.start()
        other.join(0.5)  # long enough to overtake, if it can
        return compute(*arguments, **options)

    monkeypatch.setattr(experts, "forward", overtaken)
    found.append(logits(loaded))
    other.join()
    assert len(found) == 2 and all(torch.equal(one, expected) for one in found)


def test_one_layer_passes_at_a_time_whichever_it_is(
    directories: dict[str, Path], placed: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is memory for only one of them."""
    loaded = placed(open_weights(directories["plain"]), CPU, (1, 2))
    other = threading.Thread(target=lambda: logits(loaded))
    first, second = (loaded.network.layers[index].experts for index in (1, 2))
    passes, follows = first.forward, second.forward
    passing, overtaking = list[threading.Thread](), list[bool]()

    def seen(*arguments: Any, **options: Any) -> Any:
        passing.append(threading.current_thread())
        return passes(*arguments, **options)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(second, "forward", follows)
        other.start()
        other.join(0.5)
        overtaking.append(other in passing)
        return follows(*arguments, **options)

    monkeypatch.setattr(first, "forward", seen)
    monkeypatch.setattr(second, "forward", overtaken)
    logits(loaded)
    other.join()
    assert overtaking == [False] and other in passing


def test_what_follows_the_layers_is_computed_where_the_model_begins() -> None:
    network = tiny.model()
    dispatch(network, Placement(main=META, layers=(CPU,) * len(network.layers)), {})
    assert network.norm(torch.ones(1, network.config.hidden_size)).device == META


def test_tied_tensors_stay_tied(directories: dict[str, Path], placed: Callable[..., LoadedModel]) -> None:
    """Embedding, head and codebook are one matrix; encoder and denoiser share one stack of layers."""
    loaded = placed(open_weights(directories["plain"]), CPU, (1,))
    names = [name for name, _ in loaded.network.named_parameters()]
    assert [name for name in names if "embed" in name or "head" in name] == ["embed_tokens.weight"]
    assert loaded.network.embed_tokens.weight.device == CPU
    assert len({id(tensor) for tensor in loaded.network.parameters()}) == len(names)


def generate(engine: Engine, options: GenerateOptions = OPTIONS) -> list[tuple[int, ...]]:
    return [event.token_ids for event in engine.generate(PROMPT, options) if isinstance(event, BlockCommitted)]


@pytest.mark.parametrize("form", ["plain", "int8"])
def test_a_tiny_budget_gives_the_same_text_and_tells_the_cost(
    directories: dict[str, Path], caplog: pytest.LogCaptureFixture, form: str
) -> None:
    model, dtype = str(directories[form]), "fp32"
    everything = Engine.load(model, device="cpu", dtype=dtype, context_size=64)
    demand = Skeleton.of(open_weights(directories[form]), torch.float32).demand(CPU, 64)
    kept = sum(layer.weights for layer in demand.layers)
    budget = demand.account.total - kept // 2
    with caplog.at_level(logging.WARNING, logger="localdiff.load"):
        little = Engine.load(model, device="cpu", dtype=dtype, context_size=64, max_memory=budget)
    told = r": [34] of 4 layers \(\d+ [KM]B\) are read from their files again in every pass$"
    assert re.search(told, caplog.messages[0])
    assert any(parameter.device == META for parameter in little.model.parameters())
    assert generate(little) == generate(everything)


@pytest.mark.parametrize("offloaded", [(), (1, 2)], ids=len)
def test_steps_are_told_where_the_weights_are(
    directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch, offloaded: tuple[int, ...]
) -> None:
    """A fused projection of offloaded weights would be made of empty ones, and compute with those."""
    told: list[Residence] = []
    placement = Placement(main=CPU, layers=(CPU,) * len(SPEC.layers), offloaded=offloaded)
    monkeypatch.setattr("localdiff.load.placement.place", lambda *_, **__: placement)
    monkeypatch.setattr(Denoiser, "for_device", lambda model, _, where: told.append(where) or Denoiser(model))
    Engine.load(str(directories["4bit"]), device="cpu", dtype="fp32", context_size=64)
    assert told == ["from files" if offloaded else "whole"]


@needs_interpreter
@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("form", ["4bit"])
def test_layers_that_stay_are_computed_by_kernels_beside_those_that_pass(
    directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """As a GPU does if some layers of a model stay in host memory."""
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    everything = Engine.load(str(directories[form]), device="cpu", dtype="fp32", context_size=64)
    placement = Placement(main=CPU, layers=(CPU,) * len(SPEC.layers), offloaded=(1, 2))
    monkeypatch.setattr("localdiff.load.placement.place", lambda *_, **__: placement)
    engine = Engine.load(str(directories[form]), device="cpu", dtype="fp32", context_size=64)
    passing = [path for path, _ in engine.model.named_modules() if path.startswith(("layers.1.", "layers.2."))]
    choice.use_cuda_modules(engine.model, torch.device("cuda", 0), keep=passing)
    assert [type(layer.experts) is CudaExperts for layer in engine.model.layers] == [True, False, False, True]
    engine.denoiser = denoiser_of(engine.model, static=True, layer_ops=True)
    few = replace(OPTIONS, max_tokens=8, cap=2)  # one block; the interpreter is slow
    assert generate(engine, few) == generate(everything, few)


def test_a_budget_that_is_too_small_for_anything(directories: dict[str, Path]) -> None:
    with pytest.raises(ResourceError, match="even with every layer offloaded") as error:
        Engine.load(str(directories["plain"]), device="cpu", dtype="fp32", context_size=64, max_memory=1000)
    assert str(error.value.hint).startswith("free memory of the device,"), "others may have taken it"


def test_what_fits_is_not_offloaded_and_not_warned_about(
    directories: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine.load(str(directories["plain"]), device="cpu", dtype="fp32", context_size=64, max_memory=10**9)
    assert not any(parameter.device == META for parameter in engine.model.parameters())
    assert not caplog.records


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["plain", "4bit", "int8"])
def test_a_card_with_a_budget_gives_the_same_text(
    directories: dict[str, Path], caplog: pytest.LogCaptureFixture, form: str
) -> None:
    model = str(directories[form])
    everything = Engine.load(model, device="cuda:0", dtype="fp32", context_size=64)
    demand = Skeleton.of(open_weights(directories[form]), torch.float32).demand(torch.device("cuda:0"), 64)
    budget = demand.account.total - sum(layer.weights for layer in demand.layers) // 2
    little = Engine.load(model, device="cuda:0", dtype="fp32", context_size=64, max_memory=budget)
    assert "stay in host memory and are copied to `cuda:0` in every pass" in caplog.text
    assert generate(little) == generate(everything)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two cards")
def test_layers_on_two_cards(directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    weights = open_weights(directories["4bit"])
    one, two = torch.device("cuda:0"), torch.device("cuda:1")
    alone = load_model(plan_memory(weights, one, torch.float32))
    placement = Placement(main=one, layers=(one, one, two, two))
    monkeypatch.setattr("localdiff.load.placement.place", lambda *_, **__: placement)
    spread = load_model(plan_memory(weights, one, torch.float32, further=(two,)))
    assert {tensor.device for tensor in spread.network.layers[3].state_dict().values()} == {two}
    assert_same(logits(spread), logits(alone), "cuda")
