"""The memory account: from shapes, within the targets, and equal to what is really held."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from localdiff import memory_account
from localdiff.memory_account import MemoryAccount, held_by_plan
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from quant.files.manifest import read_manifest
from quant.jobs.run import run
from quant.planning.plan import describe_plan
from quant.recipe import RECIPES
from tests.checkpoints.quantized import make_job
from tests.checkpoints.released import released_config
from tests.checkpoints.weights import write_small_weights
from tests.models.held import held_by_cache, held_by_manifest


def released(recipe: str, context: int) -> MemoryAccount:
    return MemoryAccount.of(held_by_plan(describe_plan(RECIPES[recipe])), context=context)


@pytest.mark.parametrize(
    ("recipe", "context", "gigabytes"),
    [("4bit", 8192, 18.0), ("4bit-small", 8192, 16.5), ("mixed", 32_768, 24.0), ("int8", 32_768, 32.0)],
)
def test_the_released_checkpoint_fits_the_card_it_is_meant_for(recipe: str, context: int, gigabytes: float) -> None:
    assert released(recipe, context).total < gigabytes * 1e9


def test_the_weights_are_those_of_the_plan() -> None:
    plan = describe_plan(RECIPES["4bit"])
    account = released("4bit", 8192)
    assert sum(account.weights.values()) == plan.stored_bytes
    assert account.weights == {
        label: total.stored_bytes for label, total in plan.by_class().items() if total.stored_bytes
    }


@pytest.mark.parametrize(("context", "megabytes"), [(8192, 377.5), (32_768, 880.8), (131_072, 2894)])
def test_the_cache_is_the_published_one(context: int, megabytes: float) -> None:
    assert released("4bit", context).cache == pytest.approx(megabytes * 1e6, rel=1e-3)


@pytest.mark.parametrize(("context", "dtype"), [(300, torch.bfloat16), (5000, torch.bfloat16), (5000, torch.float32)])
def test_the_cache_is_what_the_model_allocates(context: int, dtype: torch.dtype) -> None:
    cache = KVCache(ModelConfig.from_dict(released_config()), context, dtype, torch.device("meta"))
    held = held_by_plan(describe_plan(RECIPES["bf16"]))
    assert MemoryAccount.of(held, context=context, activation_bytes=dtype.itemsize).cache == held_by_cache(cache)


def test_the_weights_of_a_quantized_checkpoint_are_its_bytes(tmp_path: Path) -> None:
    job = make_job(write_small_weights(tmp_path / "model"), tmp_path / "out")
    list(run(job))
    manifest = read_manifest(tmp_path / "out")
    loaded = sum(value.nbytes for shard in manifest.shards for value in load_file(tmp_path / "out" / shard).values())
    by_manifest = MemoryAccount.of(held_by_manifest(manifest), context=64)
    assert sum(by_manifest.weights.values()) == loaded
    assert by_manifest == MemoryAccount.of(held_by_plan(job.plan), context=64)


def test_the_sizes_are_those_of_the_released_model() -> None:
    config = ModelConfig.from_dict(released_config())
    assert config.canvas_length == memory_account.CANVAS and config.sliding_window == memory_account.WINDOW
    shapes = {tensor.name: tensor.source.shape for tensor in describe_plan(RECIPES["4bit"]).tensors}
    assert shapes["model.decoder.embed_tokens.weight"] == (config.vocab_size, config.hidden_size)


def test_buffers_grow_with_the_context_and_the_canvas() -> None:
    held = held_by_plan(describe_plan(RECIPES["4bit"]))
    short, long = (MemoryAccount.of(held, context=context) for context in (8192, 131_072))
    small = MemoryAccount.of(held, context=8192, canvas=64)
    assert short.buffers < long.buffers
    assert small.buffers < short.buffers
    assert short.buffers > 256 * 262_144 * 2


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_documented_table_of_sizes_is_the_computed_one(recipe: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "quantization.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| `{recipe}`"))
    account = released(recipe, 8192)
    figures = (sum(account.weights.values()), account.total, released(recipe, 32_768).total)
    assert [cell.strip() for cell in row.split("|")[-4:-1]] == [f"{figure / 1e9:.1f} GB" for figure in figures]
