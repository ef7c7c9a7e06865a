"""What `make bench-gpu` says about tiles: each is tried on each product, and one with other results is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from quant.cuda import tiles as tables
from quant.cuda.tiles import ExpertTile, Tile
from tests.gpu.kernels import DEVICE, needs_interpreter

pytestmark = needs_interpreter


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with products that take the interpreter a moment, in a type that it multiplies correctly."""
    from tests.bench import gpu_attention, gpu_products, gpu_tiles
    from tests.bench.gpu_clock import Clocked

    sizes = {"ROWS": 8, "WIDTH": 128, "EXPERTS": 4, "INNER": 64, "TOP_K": 2}
    for name, size in sizes.items():
        for module in (gpu_products, gpu_tiles):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    for name, size in {"QKV": 128, "MLP": 64, "SLIDING": 128, "FULL": 256, "VOCABULARY": 256}.items():
        monkeypatch.setattr(gpu_tiles, name, size)
    monkeypatch.setattr(gpu_products, "VOCAB_SIZE", 256)
    monkeypatch.setattr(gpu_products, "DTYPE", torch.float16)
    heads = (gpu_attention.Heads(name="sliding", window=16, kv_heads=1, group=2, size=32),)
    monkeypatch.setattr(gpu_tiles, "RELEASED", heads)

    def clocked(run: Callable[[], object]) -> Clocked:
        run()
        return Clocked(median=2.0, low=1.0, high=3.0)

    monkeypatch.setattr(gpu_tiles, "clocked", clocked)
    return gpu_tiles


def few(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Two tiles of each kind."""
    for name in ("EXPERT", "UNQUANTIZED", "LINEAR", "NARROW", "GATED", "SOFT", "SMALL_HEAD", "LARGE_HEAD"):
        monkeypatch.setattr(module, f"{name}_TILES", getattr(module, f"{name}_TILES")[:2])
    monkeypatch.setattr(module, "PROGRAMS_PER_SM", (0.0, 100.0))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.slow
def test_each_product_is_clocked_with_each_tile(
    small: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.bench.gpu_results import Results, tables

    few(monkeypatch, small)
    results = Results(tmp_path / "results.jsonl")
    assert small.time_tiles([20], results, DEVICE) == 0
    found = list(lines(tmp_path / "results.jsonl"))
    products = list(dict.fromkeys(line["name"] for line in found))
    both_steps = ["8 rows", "16 rows"]
    of = {
        "experts, w4a16, grouped, Triton": both_steps,
        "experts, w8a16, grouped, Triton": both_steps,
        "queries, keys, values, w8a16, Triton": both_steps,
        "gate and up, w8a16, Triton": both_steps,
        "output, sliding, w8a16, Triton": both_steps,
        "output, full, w8a16, Triton": both_steps,
        "MLP down, w8a16, Triton": both_steps,
        "output, sliding, in parts of K, w8a16, Triton": both_steps,
        "output, full, in parts of K, w8a16, Triton": both_steps,
        "MLP down, in parts of K, w8a16, Triton": both_steps,
        "head, w8a16, Triton": ["8 rows"],
        "soft embedding w8a16, Triton": ["8 rows"],
        "attention, sliding": ["20 positions", "20 positions, commit"],
        "queries, keys, values, w4a16, Triton": ["8 rows"],
        "gate and up, w4a16, Triton": ["8 rows"],
        "output, sliding, w4a16, Triton": ["8 rows"],
        "output, full, w4a16, Triton": ["8 rows"],
        "MLP down, w4a16, Triton": ["8 rows"],
        "experts, w4a8, grouped, Triton": both_steps,
        "experts, fp16, grouped, Triton": ["8 rows"],
    }
    assert products == [f"{name}, {step}" for name, steps in of.items() for step in steps]
    assert all([line["tile"] for line in found if line["name"] == name][0] == "chosen" for name in products)
    assert len(found) == 3 * len(products)
    assert "| experts, w4a16, grouped, Triton, 8 rows | 2.0 | chosen | 2.0 |" in tables(found)
    assert "chosen, 1.00 times as fast as what is chosen" in capsys.readouterr().out

    monkeypatch.setattr(small, "clocked", None)
    assert small.time_tiles([20], results, DEVICE) == 0, "what is in the file is not clocked again"


def test_shapes_are_those_of_the_released_layers() -> None:
    """Of a sliding layer and of a full one; the dense MLP is the same in both."""
    from quant.released import released_shapes
    from tests.bench import gpu_tiles

    shapes = released_shapes(6)
    for layer, heads in ((0, gpu_tiles.SLIDING), (5, gpu_tiles.FULL)):
        prefix = f"model.decoder.layers.{layer}."
        assert shapes[f"{prefix}self_attn.o_proj.weight"] == (gpu_tiles.WIDTH, heads)
        assert shapes[f"{prefix}mlp.down_proj.weight"] == (gpu_tiles.WIDTH, gpu_tiles.MLP)
    projections = [shapes[f"model.decoder.layers.0.self_attn.{name}_proj.weight"] for name in "qkv"]
    assert sum(rows for rows, _ in projections) == gpu_tiles.QKV


@pytest.mark.slow
def test_the_clock_runs_the_tile_that_is_named(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are restored afterwards."""
    from tests.bench.gpu_results import Results

    seen: list[ExpertTile] = []
    rows = ExpertTile.rows
    monkeypatch.setattr(ExpertTile, "rows", lambda tile, *sizes, **how: seen.append(tile) or rows(tile, *sizes, **how))
    product = next(small.products([20], DEVICE))
    monkeypatch.setattr(small, "products", lambda *_: iter([product]))
    before = dict(tables.EXPERTS[tables.mma_kind(DEVICE)])
    assert small.time_tiles([20], Results(None), DEVICE) == 0
    assert set(small.EXPERT_TILES) <= set(seen)
    assert tables.EXPERTS[tables.mma_kind(DEVICE)] == before


def test_parts_of_k_are_timed_as_they_are_and_compared_as_their_sum(small: Any) -> None:
    (product,) = small._of_parts("output", 1024, [8], DEVICE)
    shapes = []
    for programs in (0.0, 100.0):
        with product.with_tile(programs):
            found = product.run()
        shapes.append(found.dim())
        assert product.whole(found).shape == (8, small.WIDTH)
    assert shapes == [2, 3]


def test_a_tile_that_computes_otherwise_is_wrong(
    small: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.bench.gpu_results import Results

    table = {"key": Tile(16, 64, 4)}
    product = small.Product(
        name="a product",
        run=lambda: torch.full((2,), float(table["key"].rows)),
        table=table,
        key="key",
        others=(Tile(16, 64, 8), Tile(32, 64, 4)),
    )
    monkeypatch.setattr(small, "products", lambda *_: iter([product]))
    assert small.time_tiles([20], Results(None), DEVICE) == 1
    out = capsys.readouterr().out
    assert "32 × 64, 4 warps, 3 stages: WRONG, off by 1.0e+00" in out and out.count("WRONG") == 1


def test_only_products_that_are_named_are_timed(
    small: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.bench.gpu_results import Results

    table = {"key": Tile(16, 64, 4)}
    products = [
        small.Product(name=name, run=lambda: torch.ones(2), table=table, key="key", others=())
        for name in ("head, w8a16", "a head", "soft embedding")
    ]
    monkeypatch.setattr(small, "products", lambda *_: iter(products))
    assert small.time_tiles([20], Results(None), DEVICE, ["head", "soft"]) == 0
    out = capsys.readouterr().out
    assert "  head, w8a16: chosen" in out and "  soft embedding: chosen" in out and "a head" not in out
    assert small.time_tiles([20], Results(None), DEVICE, ["head", "heads", "Soft"]) == 1
    out = capsys.readouterr().out
    assert "  head, w8a16: chosen" in out
    assert out.count("no product's name begins with") == 2 and "`heads`" in out and "`Soft`" in out


def test_a_tile_that_does_not_fit_the_card_is_left_out(
    small: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from triton.runtime.errors import OutOfResources

    from tests.bench.gpu_results import Results

    table = {"key": Tile(16, 64, 4)}

    def run() -> torch.Tensor:
        if table["key"].rows == 32:
            raise OutOfResources(120_000, 101_376, "shared memory")
        return torch.ones(2)

    product = small.Product(name="a product", run=run, table=table, key="key", others=(Tile(32, 64, 4),))
    monkeypatch.setattr(small, "products", lambda *_: iter([product]))
    assert small.time_tiles([20], Results(None), DEVICE) == 0
    out = capsys.readouterr().out
    assert "does not run here: out of resource: shared memory" in out and "a product: chosen, 1.00 times" in out


def test_there_is_a_tile_to_compare_for_each_that_is_chosen(small: Any) -> None:
    """Sizes in the tables are among those that are timed, but for those of few rows."""
    from localdiff.kernels import attention
    from quant.cuda import embedding

    assert {(tile.few_rows, tile.down_columns) for kind in tables.EXPERTS.values() for tile in kind.values()} <= {
        (tile.few_rows, tile.down_columns) for tile in small.EXPERT_TILES
    }
    assert set(attention.SMALL_HEADS.values()) <= set(small.SMALL_HEAD_TILES)
    assert set(attention.LARGE_HEADS.values()) <= set(small.LARGE_HEAD_TILES)
    for several, others in (
        (tables.LINEAR.values(), small.LINEAR_TILES),
        ([of_kind["a16"] for of_kind in tables.GATED.values()], small.GATED_TILES),
        (embedding.TILES.values(), small.SOFT_TILES),
    ):
        sizes = {(tile.rows, tile.columns, tile.warps, tile.stages) for tile in others}
        chosen = [tile for of_kind in several for tile in of_kind if tile.rows > 16]
        assert {(tile.rows, tile.columns, tile.warps, tile.stages) for tile in chosen} <= sizes
