"""Recipes: every tensor has one scheme, and the totals are the agreed ones."""

from __future__ import annotations

from math import prod

import pytest

from quant.codecs import CODECS
from quant.codecs.codec import stored_bytes
from quant.errors import RecipeError
from quant.recipe import RECIPES, Recipe, Rule, recipe_named
from quant.released import released_shapes

RELEASED = released_shapes()
GIGABYTES = {"4bit": 15.4, "4bit-small": 13.8, "mixed": 18.4, "int8": 26.05, "bf16": 50.5}


def released_bytes(recipe: Recipe) -> float:
    """Text-only weights of the released checkpoint under a recipe, in GB."""
    total = 0
    for name, shape in RELEASED.items():
        scheme = recipe.resolved(RELEASED).scheme(name)
        if scheme in CODECS:
            total += stored_bytes(CODECS[scheme], shape)
        elif scheme == "keep":
            total += 2 * prod(shape)
    return total / 1e9


def test_the_table_of_totals_names_every_recipe() -> None:
    assert set(GIGABYTES) == set(RECIPES)


@pytest.mark.parametrize("name", GIGABYTES)
def test_totals_are_the_agreed_ones(name: str) -> None:
    assert released_bytes(RECIPES[name]) == pytest.approx(GIGABYTES[name], abs=0.05)


@pytest.mark.parametrize("name", RECIPES)
def test_every_released_tensor_has_a_scheme(name: str) -> None:
    recipe = RECIPES[name].resolved(RELEASED)
    dropped = {tensor for tensor in RELEASED if recipe.scheme(tensor) == "drop"}
    assert dropped == {tensor for tensor in RELEASED if "vision" in tensor}


@pytest.mark.parametrize("name", RECIPES)
def test_small_tensors_stay_as_published(name: str) -> None:
    recipe = RECIPES[name].resolved(RELEASED)
    for tensor in RELEASED:
        if "vision" not in tensor and any(word in tensor for word in ("norm", "scalar", "router")):
            assert recipe.scheme(tensor) == "keep", tensor


@pytest.mark.parametrize("name", ["4bit", "4bit-small", "mixed", "int8"])
def test_every_large_tensor_is_quantized(name: str) -> None:
    recipe = RECIPES[name].resolved(RELEASED)
    for tensor, shape in RELEASED.items():
        if recipe.scheme(tensor) == "keep":
            assert prod(shape) < 500_000, tensor


@pytest.mark.parametrize("name", RECIPES)
def test_the_embedding_never_falls_below_eight_bits(name: str) -> None:
    assert RECIPES[name].scheme("model.decoder.embed_tokens.weight") in ("int8", "keep")


@pytest.mark.parametrize(("layer", "scheme"), [(0, "int8"), (1, "nf4"), (28, "nf4"), (29, "int8")])
def test_4bit_keeps_the_outer_layers_at_eight_bits(layer: int, scheme: str) -> None:
    recipe = RECIPES["4bit"].resolved(RELEASED)
    for part in ("gate_up_proj", "down_proj"):
        assert recipe.scheme(f"model.decoder.layers.{layer}.experts.{part}") == scheme


def test_the_last_layer_is_the_models_own() -> None:
    few = released_shapes(layers=6)
    recipe = RECIPES["4bit"].resolved(few)
    assert [recipe.scheme(f"model.decoder.layers.{layer}.experts.down_proj") for layer in range(6)] == [
        "int8", "nf4", "nf4", "nf4", "nf4", "int8"
    ]  # fmt: skip
    assert not any("{" in rule.pattern for rule in recipe.rules)


def test_mixed_treats_the_halves_of_an_expert_apart() -> None:
    recipe = RECIPES["mixed"]
    assert recipe.scheme("model.decoder.layers.7.experts.gate_up_proj") == "nf4"
    assert recipe.scheme("model.decoder.layers.7.experts.down_proj") == "int8"


@pytest.mark.parametrize(
    "name", ["model.decoder.layers.0.experts.gate_up_proj.weight", "model.layers.0.mlp.up_proj.weight", "x"]
)
def test_a_tensor_without_a_rule_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(RecipeError, match=name):
        RECIPES["4bit"].resolved(RELEASED).scheme(name)


def test_tied_copies_are_dropped_and_the_encoders_scalars_kept() -> None:
    recipe = RECIPES["4bit"]
    assert recipe.scheme("lm_head.weight") == "drop"
    assert recipe.scheme("model.encoder.language_model.layers.3.mlp.up_proj.weight") == "drop"
    assert recipe.scheme("model.encoder.language_model.layers.3.layer_scalar") == "keep"


def test_the_first_rule_decides() -> None:
    recipe = Recipe(name="x", rules=(Rule(pattern="a.*", scheme="keep"), Rule(pattern="*", scheme="drop")))
    assert (recipe.scheme("a.b"), recipe.scheme("b")) == ("keep", "drop")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="q2"):
        Rule(pattern="*", scheme="q2")  # type: ignore[arg-type]


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with pytest.raises(RecipeError, match="3bit") as caught:
        recipe_named("3bit")
    assert all(name in (caught.value.hint or "") for name in RECIPES)


def test_weights_without_layers_are_refused_where_the_last_layer_counts() -> None:
    with pytest.raises(RecipeError, match="no layers"):
        RECIPES["4bit"].resolved(["model.decoder.embed_tokens.weight"])
