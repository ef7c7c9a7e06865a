"""Bytes and operations, by hand for a small model and against known sums for the released one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localdiff.bench.step.random_weights import stored_as
from localdiff.bench.step.released import released_config
from localdiff.bench.step.subject import _sketch
from localdiff.bench.step.work import NORM_PASSES, Pass, Work, by_part
from localdiff.model.config import ModelConfig
from quant.planning.plan import describe_plan
from quant.recipe import RECIPES, Recipe
from tests.localdiff.bench.step.small import small_config


def canvas_pass(config: ModelConfig, recipe: Recipe, *, context: int, is_canvas: bool = True, hit: float = 1.0) -> Pass:
    return Pass(
        config=config,
        schemes=stored_as(_sketch(config), recipe),
        itemsize=2,
        rows=config.canvas_length,
        context=context,
        experts_hit=hit,
        is_canvas=is_canvas,
    )


def test_operations_of_the_released_model() -> None:
    works = by_part(canvas_pass(released_config(), RECIPES["bf16"], context=1024).work())
    giga = {part: work.operations / 1e9 for part, work in works.items()}
    assert giga["attention projections"] == pytest.approx(568.4, abs=0.1)
    assert giga["attention core"] == pytest.approx(187.8, abs=0.3)
    assert giga["experts"] == pytest.approx(730.8, abs=0.1)
    assert giga["head"] == pytest.approx(378.0, abs=0.1)
    mlp = 2 * 256 * 3 * 2816 * 2112 / 1e9
    assert giga["dense MLP"] == pytest.approx(30 * mlp)
    assert giga["self-conditioning"] == pytest.approx(mlp + 2 * 256 * 64 * 2816 / 1e9)


@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_are_the_bytes_that_the_recipe_stores(recipe: str) -> None:
    works = canvas_pass(released_config(), RECIPES[recipe], context=1024).work()
    nothing = Pass(
        config=released_config(),
        schemes=stored_as(_sketch(released_config()), RECIPES[recipe]),
        itemsize=2,
        rows=0,
        context=0,
    ).work()
    weights = sum(work.nbytes for work in nothing.values())
    plan = describe_plan(RECIPES[recipe])
    products = sum(t.stored_bytes for t in plan.tensors if len(t.source.shape) > 1 and "vision" not in t.name)
    assert weights == products
    assert sum(work.nbytes for work in works.values()) > weights


def test_one_small_layer_by_hand() -> None:
    rows, width, inner, context = 8, 64, 64, 4
    works = canvas_pass(small_config(1), RECIPES["bf16"], context=context, hit=0.5).work()
    queries, keys = 4 * 16, 2 * 16
    projections = 2 * (2 * queries + 2 * keys) * width + 2 * rows * (3 * width + queries + queries + 2 * keys + width)
    assert works["attention projections", 0] == Work(projections, 2 * rows * width * (2 * queries + 2 * keys))
    seen = rows + context
    assert works["attention core", 0] == Work(2 * (2 * seen * keys + 2 * rows * queries), 2 * rows * seen * queries * 2)
    experts = 0.5 * 8 * 3 * width * inner * 2 + 2 * (rows * 2) * (2 * width + 3 * inner)
    assert works["experts", 0] == Work(experts, 2 * rows * 2 * 3 * width * inner)
    assert works["router", 0] == Work(2 * 8 * width + 2 * rows * (8 + width), 2 * rows * 8 * width)
    assert works["norms, residuals", 0] == Work(NORM_PASSES * 2 * rows * width)


def test_exact_self_conditioning_reads_each_embedding_once() -> None:
    config = small_config(1)
    vocab_size, width, rows = config.vocab_size, config.hidden_size, config.canvas_length
    usual = canvas_pass(config, RECIPES["bf16"], context=4)
    few, all_ids = (replace(usual, soft_entries=count).work() for count in (1, vocab_size))
    name = ("self-conditioning", None)
    assert all_ids[name].operations - few[name].operations == 2 * rows * (vocab_size - 1) * width
    assert all_ids[name].nbytes - few[name].nbytes == 2 * (vocab_size - rows) * width


def test_a_sliding_layer_sees_its_window() -> None:
    near, far = (canvas_pass(small_config(), RECIPES["bf16"], context=context).work() for context in (5, 5000))
    assert near["attention core", 0] == far["attention core", 0]
    assert near["attention core", 2].operations < far["attention core", 2].operations


def test_a_commit_pass_has_neither_head_nor_sampling() -> None:
    works = by_part(canvas_pass(small_config(), RECIPES["4bit"], context=4, is_canvas=False).work())
    assert {"head", "sampling", "self-conditioning"}.isdisjoint(works)
    assert "experts" in works
