"""Plans: what a recipe will do, from headers alone."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quant.errors import RecipeError
from quant.files.source import StoredTensor, read_source
from quant.jobs import pool
from quant.jobs.pool import MAX_GPU_WORKERS, MAX_WORKERS, available_workers
from quant.planning.encoder import MIN_FREE_BYTES
from quant.planning.plan import CLASSES, describe_plan, make_plan, tensor_class, working_bytes
from quant.recipe import RECIPES, Recipe, Rule
from quant.released import released_shapes
from tests.checkpoints.weights import small_weights, write_small_weights


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_small_weights(tmp_path / "model")


def test_a_shard_for_every_file_that_is_stored(directory: Path) -> None:
    plan = make_plan(RECIPES["4bit"], read_source(directory))
    assert [(shard.file, shard.source.name) for shard in plan.shards] == [
        ("model-00001-of-00002.safetensors", "model-00001-of-00003.safetensors"),
        ("model-00002-of-00002.safetensors", "model-00003-of-00003.safetensors"),
    ]


def test_every_tensor_is_planned_once(directory: Path) -> None:
    plan = make_plan(RECIPES["4bit"], read_source(directory))
    names = [tensor.name for tensor in plan.tensors]
    assert sorted(names) == sorted(name for tensors in small_weights().values() for name in tensors)
    stored = [tensor.name for shard in plan.shards for tensor in shard.tensors]
    assert sorted((*stored, *plan.dropped)) == sorted(names)
    assert all("vision" in name for name in plan.dropped)


def test_reads_headers_only(directory: Path) -> None:
    expected = make_plan(RECIPES["4bit"], read_source(directory)).stored_bytes
    for path in directory.glob("*.safetensors"):
        content = path.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        path.write_bytes(content[:header] + b"\xff" * (len(content) - header))
    assert make_plan(RECIPES["4bit"], read_source(directory)).stored_bytes == expected


def test_bytes_to_read_are_those_of_the_files_that_are_needed(directory: Path) -> None:
    plan = make_plan(RECIPES["4bit"], read_source(directory))
    files = [directory / f"model-0000{number}-of-00003.safetensors" for number in (1, 3)]
    assert plan.source_bytes == sum(path.stat().st_size for path in files)


def test_the_released_checkpoint_by_class() -> None:
    totals = describe_plan(RECIPES["4bit"]).by_class()
    assert list(totals) == list(CLASSES)
    assert totals["experts"].tensors == 60
    assert totals["experts"].source_bytes == 2 * 22_837_985_280
    assert totals["attention"].tensors == 115
    assert totals["dense MLP"].tensors == 90
    assert totals["vision"].tensors == 356
    assert totals["vision"].stored_bytes == 0
    assert totals["embedding and head"].stored_bytes == 262_144 * 2816 * 33 // 32


def test_the_released_checkpoint_in_total() -> None:
    plan = describe_plan(RECIPES["4bit"])
    assert plan.source_bytes == 51_647_562_456
    assert plan.stored_bytes == sum(total.stored_bytes for total in plan.by_class().values())
    assert plan.shards == ()


def test_nothing_of_the_text_model_is_dropped() -> None:
    plan = describe_plan(RECIPES["bf16"])
    assert plan.stored_bytes == 2 * sum(
        prod(shape) for name, shape in released_shapes().items() if "vision" not in name
    )


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("model.decoder.layers.3.experts.down_proj", "experts"),
        ("model.decoder.layers.3.self_attn.k_proj.weight", "attention"),
        ("model.decoder.layers.3.self_attn.k_norm.weight", "norms, router, scalars"),
        ("model.decoder.layers.3.router.proj.weight", "norms, router, scalars"),
        ("model.decoder.self_conditioning.up_proj.weight", "self-conditioning"),
        ("model.decoder.self_conditioning.pre_norm.weight", "norms, router, scalars"),
        ("model.encoder.embed_vision.embedding_projection.weight", "vision"),
    ],
)
def test_classes(name: str, label: str) -> None:
    assert tensor_class(name) == label


def test_a_shape_without_groups_is_an_error_that_names_the_tensor() -> None:
    recipe = Recipe(name="x", rules=(Rule(pattern="*", scheme="nf4"),))
    with pytest.raises(RecipeError, match="a.weight"):
        describe_plan(recipe, [StoredTensor(name="a.weight", dtype="BF16", shape=(8, 96), file="", start=0)])


def test_a_type_that_is_no_float_is_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    save_file({"a.weight": torch.zeros(8, 64, dtype=torch.int8)}, tmp_path / "model.safetensors")
    recipe = Recipe(name="x", rules=(Rule(pattern="*", scheme="nf4"),))
    with pytest.raises(RecipeError, match="a.weight"):
        make_plan(recipe, read_source(tmp_path))


def test_an_unknown_tensor_is_an_error(directory: Path) -> None:
    save_file({"extra": torch.zeros(1)}, directory / "model-00002-of-00003.safetensors")
    (directory / "model.safetensors.index.json").write_text(
        '{"weight_map": {"extra": "model-00002-of-00003.safetensors"}}'
    )
    with pytest.raises(RecipeError, match="extra"):
        make_plan(RECIPES["int8"], read_source(directory))


def test_working_memory_stays_under_the_limit_on_any_machine() -> None:
    assert working_bytes(2) < 0.1e9
    assert working_bytes(MAX_WORKERS) < 2e9


def test_a_job_needs_less_of_a_gpu_than_a_gpu_must_have_free() -> None:
    context = 0.5e9  # what CUDA itself takes
    doubled = 2 * working_bytes(MAX_GPU_WORKERS)  # the allocator keeps some of what is freed
    assert doubled + context < MIN_FREE_BYTES


def test_a_gpu_is_shared_by_fewer_workers_than_there_may_be_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "usable_cores", lambda: 100)
    assert available_workers(torch.device("cpu")) == MAX_WORKERS
    assert available_workers(torch.device("cuda", 0)) == MAX_GPU_WORKERS
    monkeypatch.setattr(pool, "usable_cores", lambda: 2)
    assert available_workers(torch.device("cpu")) == available_workers(torch.device("cuda", 0)) == 2
