"""Random weights: the state that a loader would leave, with numbers of the right size."""

from __future__ import annotations

import pytest
import torch

from localdiff.bench.step.random_weights import SPREAD, random_model, stored_as
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.modules import QuantTensor, swap_modules
from quant.recipe import RECIPES
from tests.localdiff.bench.step.small import small_config

CPU = torch.device("cpu")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_is_what_the_loader_would_leave(recipe: str, dtype: torch.dtype) -> None:
    config = small_config()
    network = random_model(config, RECIPES[recipe], dtype, CPU)
    with torch.device("meta"):
        empty = DiffusionGemma(config)
        swap_modules(empty, stored_as(empty, RECIPES[recipe]), dtype)
    state, expected = network.state_dict(), empty.state_dict()
    assert {name: tensor.shape for name, tensor in state.items()} == {n: t.shape for n, t in expected.items()}
    for name, tensor in state.items():
        stored = name.endswith((".codes", ".scales"))
        assert tensor.dtype == (expected[name].dtype if stored else dtype), name
        assert tensor.device == CPU


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_codes_stand_for_weights_of_the_wanted_size(codec: str) -> None:
    network = random_model(small_config(), RECIPES["4bit-small"], torch.float32, CPU)
    tensors = [m for m in network.modules() if isinstance(m, QuantTensor) and m.codec.name == codec]
    weights = torch.cat([tensor.decode(torch.float32).flatten() for tensor in tensors])
    assert abs(float(weights.std()) / SPREAD - 1) < 0.1
    assert abs(float(weights.mean())) < SPREAD / 10


def test_a_model_is_the_same_each_time() -> None:
    first, again = (random_model(small_config(), RECIPES["4bit"], torch.float32, CPU).state_dict() for _ in range(2))
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])


def test_progress_ends_with_everything() -> None:
    told: list[tuple[int, int]] = []
    network = random_model(
        small_config(), RECIPES["4bit"], torch.float32, CPU, progress=lambda done, of: told.append((done, of))
    )
    count = len(network.state_dict())
    assert told == [(done, count) for done in range(1, count + 1)]
