"""The released checkpoint, from its description: which recipe fits which card, and that any recipe runs on any."""

from __future__ import annotations

import functools

import pytest
import torch

from localdiff.errors import ResourceError
from localdiff.load import StoredWeights
from localdiff.load.placement import Budget, Demand, place
from localdiff.load.skeleton import Skeleton
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.planning.plan import describe_plan
from quant.recipe import RECIPES
from tests.checkpoints.released import released_config

CARD, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
GB = 10**9


class Described(StoredWeights):
    """Weights of which only names, shapes and sizes are known."""

    def __init__(self, recipe: str) -> None:
        plan = describe_plan(RECIPES[recipe])
        stored = [tensor for tensor in plan.tensors if tensor.scheme != "drop"]
        self.recipe = recipe
        self.shapes = {tensor.name: tensor.source.shape for tensor in stored}
        self._nbytes = {tensor.name: tensor.stored_bytes for tensor in stored}

    def nbytes(self, name: str, dtype: torch.dtype) -> int:
        return self._nbytes[name]

    def is_mapped(self, name: str, dtype: torch.dtype) -> bool:
        return False


@functools.cache
def network() -> DiffusionGemma:
    with torch.device("meta"):
        return DiffusionGemma(ModelConfig.from_dict(released_config()))


def demand(recipe: str, context: int) -> Demand:
    weights = Described(recipe)
    names = {name: name for name in weights.shapes}
    empty = Skeleton(network=network(), weights=weights, source_of=names, copies={}, dtype=torch.bfloat16)
    return empty.demand(CARD, context)


@pytest.mark.parametrize("recipe", RECIPES)
def test_any_recipe_runs_on_any_card(recipe: str) -> None:
    wanted = demand(recipe, 8192)
    for gigabytes in (6, 8, 12, 16, 18, 24, 32):
        placement = place(wanted, [Budget(device=CARD, nbytes=gigabytes * GB)], may_offload=True)
        kept = sum(layer.weights for index, layer in enumerate(wanted.layers) if index not in placement.offloaded)
        assert kept < gigabytes * GB
        assert bool(placement.offloaded) == (wanted.account.total > gigabytes * GB), f"{gigabytes} GB"


def test_int8_on_a_card_of_18_gigabytes() -> None:
    placement = place(demand("int8", 8192), [Budget(device=CARD, nbytes=18 * GB)], may_offload=True)
    assert 8 <= len(placement.offloaded) <= 15


@pytest.mark.parametrize(("recipe", "context", "gigabytes"), [("4bit", 8192, 17.44), ("4bit-small", 8192, 16.0)])
def test_what_a_recipe_is_made_for_fits_without_an_offload(recipe: str, context: int, gigabytes: float) -> None:
    """A process on an H100 with 18 GB finds 17.44 free, because it has a context by then."""
    budget = Budget(device=CARD, nbytes=int(gigabytes * GB))
    assert place(demand(recipe, context), [budget], may_offload=False).offloaded == ()


def test_two_small_cards_hold_what_one_does_not() -> None:
    wanted = demand("4bit", 8192)
    budgets = [Budget(device=device, nbytes=11 * GB) for device in (CARD, SECOND)]
    with pytest.raises(ResourceError):
        place(wanted, budgets[:1], may_offload=False)
    placement = place(wanted, budgets, may_offload=False)
    assert set(placement.layers) == {CARD, SECOND}
    assert placement.offloaded == ()


def test_the_parts_of_the_layers_and_the_rest_are_the_whole() -> None:
    wanted = demand("4bit", 8192)
    assert len(wanted.layers) == 30
    caches = {layer.cache for layer in wanted.layers}
    assert len(caches) == 2, "sliding and full layers"
    assert sum(layer.cache for layer in wanted.layers) == wanted.account.cache
    embedding = wanted.account.weights["embedding and head"]
    assert embedding < wanted.outside < embedding + wanted.account.buffers + wanted.account.slack + 0.03 * GB
