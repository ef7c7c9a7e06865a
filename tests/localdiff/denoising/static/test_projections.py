"""Whole blocks with fused projections against dynamic steps without, for each form of weights on a card."""

from __future__ import annotations

import gc
import io

import pytest
import torch

from localdiff.adapter.attach import attach
from localdiff.adapter.lowrank import LowRank
from localdiff.adapter.modules import AdaptedLinear
from localdiff.diffusion.noise import SeededNoise
from localdiff.load import kernels
from localdiff.load.streaming import _tensors_of
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.projections import Projections, fuse_projections
from quant.cuda import choice
from tests.gpu.kernels import DEVICE, needs_triton
from tests.gpu.launches import dense_switch
from tests.localdiff.bench.step.small import small_subject
from tests.models import tiny
from tests.models.allocations import Allocations
from tests.models.steps import block_of, denoiser_of

pytestmark = [
    needs_triton,
    pytest.mark.usefixtures("attention_in_torch"),
    pytest.mark.filterwarnings("ignore:divide by zero"),
]

CARD = torch.device("cuda", 0)
LAYERS = 3  # two kinds; the interpreter is slow
STEPS = 2  # the second is conditioned on the first


def on_card(recipe: str, dense: str, monkeypatch: pytest.MonkeyPatch) -> DiffusionGemma:
    """A small model with the modules that a card gets."""
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    for name, value in dense_switch(dense).items():
        monkeypatch.setenv(name, value)
    network = small_subject(recipe, layers=LAYERS).network.to(DEVICE)
    choice.use_cuda_modules(network, CARD)
    return network


def block(network: DiffusionGemma, **how: bool) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Argmax ids and entropies of each step of a block after a prompt of nine ids."""
    config, denoiser = network.config, denoiser_of(network, **how)
    cache = KVCache(config, 64, torch.float32, DEVICE)
    with torch.inference_mode():
        network.encode(torch.arange(9, device=DEVICE), cache)
    noise = SeededNoise(1)
    settings = block_of(STEPS)
    canvas = noise.canvas(config.canvas_length, config.vocab_size).to(DEVICE)
    steps = denoiser.denoise_block(cache, canvas, noise, settings)
    return [(step.event.argmax_ids, step.event.entropies) for step in steps]


def parts(network: DiffusionGemma) -> list[Projections]:
    return [module for module in network.modules() if isinstance(module, Projections)]


@pytest.mark.parametrize(
    ("recipe", "dense"),
    [
        ("bf16", "plain"),
        ("4bit", "a16"),
        pytest.param("4bit-small", "plain", marks=pytest.mark.slow),
        pytest.param("4bit", "plain", marks=pytest.mark.slow),
        pytest.param("4bit-small", "a16", marks=pytest.mark.slow),
    ],
)
def test_a_block_is_the_same_as_with_dynamic_steps(recipe: str, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = block(small_subject(recipe, layers=LAYERS).network.to(DEVICE))
    network = on_card(recipe, dense, monkeypatch)
    found = block(network, static=True, layer_ops=True, projections=True)
    assert sum(part.fused() is not None for part in parts(network)) > len(network.layers)
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    for (_, ours), (_, theirs) in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-3, rtol=1e-3)


def test_what_is_saved_is_what_was_loaded() -> None:
    network = tiny.model()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert fuse_projections(network) == len(parts(network)) == 2 * len(network.layers) + 1
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    file = io.BytesIO()
    torch.save(after, file)
    assert file.tell() < 1.2 * sum(tensor.nbytes for tensor in before.values()) + 100_000
    other = tiny.model(seed=7)
    other.load_state_dict(after)
    assert torch.equal(other.layers[0].self_attn.k_proj.weight, network.layers[0].self_attn.k_proj.weight)


def test_values_written_into_a_module_are_multiplied_with() -> None:
    network = tiny.model()
    fuse_projections(network)
    mlp, x = network.layers[0].mlp, torch.randn(3, 32)
    before = mlp(x)
    network.load_state_dict(tiny.model(seed=7).state_dict())
    assert not torch.equal(mlp(x), before)
    torch.testing.assert_close(mlp(x), tiny.model(seed=7).layers[0].mlp(x))


def test_it_is_done_once() -> None:
    network = tiny.model()
    fuse_projections(network)
    made = [part.fused() for part in parts(network)]
    assert fuse_projections(network) == len(made)
    assert all(part.fused() is before for part, before in zip(parts(network), made, strict=True))


@pytest.mark.parametrize("adapted_first", [True, False])
def test_an_adapter_keeps_the_products_of_its_module_apart(adapted_first: bool) -> None:
    network, x = tiny.model(), torch.randn(5, 32)
    width = network.layers[0].mlp.up_proj.weight.shape[0]
    term = LowRank(torch.randn(2, 32), torch.randn(width, 2), scale=1.0)
    if not adapted_first:
        fuse_projections(network)
    attach(network, {("decoder", "layers.0.mlp.up_proj"): term, ("encoder", "layers.0.mlp.up_proj"): term})
    mlp = network.layers[0].mlp
    assert isinstance(mlp.up_proj, AdaptedLinear)
    expected = mlp(x)
    fuse_projections(network)
    assert mlp.fused() is None and network.layers[1].mlp.fused() is not None
    assert torch.equal(mlp(x), expected)
    assert not torch.allclose(expected, mlp.down_proj(mlp.layer_ops.gelu_mul(mlp.gate_proj(x), mlp.up_proj.base(x))))


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: None)
    for plain, words in (("", True), ("projections", False)):
        monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", plain)
        network = tiny.model()
        kernels.take_kernels(network, CARD)
        assert ("fused projections" in network.kernels) is words
        assert any(part.fused() is not None for part in parts(network)) is words


@pytest.mark.parametrize(("recipe", "dense"), [("bf16", "plain"), ("4bit", "plain"), ("4bit-small", "a16")])
def test_no_more_than_one_stack_is_held_twice(recipe: str, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Allocations() as held:
        network = on_card(recipe, dense, monkeypatch)
        gc.collect()
        before = held.peak = held.live
        fuse_projections(network)
    stacks = [fused for part in parts(network) if (fused := part.fused()) is not None]
    sizes = [sum(tensor.nbytes for module in stack.parts for tensor in _tensors_of(module)) for stack in stacks]
    assert held.live == before > sum(sizes)
    assert held.peak == before + max(sizes)
