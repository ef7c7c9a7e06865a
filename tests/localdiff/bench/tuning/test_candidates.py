"""The tiles that are tried: which products get which, and that each has a name."""

from __future__ import annotations

from typing import get_args

import pytest

from localdiff.bench.tuning import candidates
from localdiff.bench.tuning.candidates import divisions_of, tile_name, tiles_for
from localdiff.kernels.attention import LARGE_HEADS, SMALL_HEADS, AttentionTile
from quant.cuda import embedding, tiles
from quant.cuda.tiles import ExpertTile, MmaKind, Tile
from quant.cuda.timed import Kind, Product

KINDS: tuple[MmaKind, ...] = get_args(MmaKind)


def product(kind: Kind, weights: str = "w8a16", columns: int = 2816) -> Product:
    return Product(kind=kind, weights=weights, dtype="bf16", rows=256, columns=columns, inputs=2816)


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_another_than_the_usual_one_and_divides_the_columns(kind: MmaKind) -> None:
    for of, usual in (
        (product("linear"), tiles.LINEAR[kind][1]),
        (product("gated", columns=2112), tiles.GATED[kind]["a16"][1]),
        (product("soft"), embedding.TILES[2][-1]),
        (product("linear", columns=2112), tiles.LINEAR[kind][1]),
        (product("experts", "w4a16"), tiles.EXPERTS[kind]["a16"]),
        (product("experts", "w4a8"), tiles.EXPERTS[kind]["a8"]),
        (product("experts", "bf16"), tiles.EXPERTS[kind]["a16"]),
        (product("attention", "", 256), SMALL_HEADS[kind]),
        (product("attention", "", 512), LARGE_HEADS[kind]),
    ):
        found = tiles_for(of, usual, kind)
        assert len(found) >= 5 and usual not in found and len(set(found)) == len(found)
        assert {type(tile) for tile in found} == {type(usual)}
        assert len({tile_name(tile) for tile in (*found, usual)}) == len(found) + 1, "each has a name of its own"
        if isinstance(usual, Tile):
            assert all(of.columns % tile.columns == 0 for tile in found if isinstance(tile, Tile))


def test_what_only_an_h100_can_do_is_tried_there_alone() -> None:
    for kind in KINDS:
        for of in (product("linear"), product("gated", columns=2112)):
            found = tiles_for(of, Tile(16, 64, 4), kind)
            assert any(isinstance(tile, Tile) and tile.overlaps for tile in found) is (kind == "wgmma")
        nf4, *others = (
            tiles_for(product("experts", weights), tiles.EXPERTS[kind]["a16"], kind)
            for weights in ("w4a16", "w8a16", "w4a16, no table")
        )
        assert any(isinstance(tile, ExpertTile) and tile.byte_table for tile in nf4) is (kind == "wgmma")
        assert not any(isinstance(tile, ExpertTile) and tile.byte_table for other in others for tile in other)
    for of in (product("linear", "w4a16"), product("head")):  # the head's codes are not in the order of lanes
        found = tiles_for(of, Tile(16, 64, 4), "wgmma")
        assert not any(isinstance(tile, Tile) and tile.overlaps for tile in found)


def test_sums_leave_registers_for_what_is_multiplied() -> None:
    """A thread has 255 registers, one of the gated kernel as many as `GATED_REGISTERS` says."""
    from quant.cuda.linear import GATED_REGISTERS

    for gated in (*candidates.GATED_TILES, *candidates.OVERLAPPED_GATED_TILES):
        assert 2 * gated.rows * gated.columns // (32 * gated.warps) < GATED_REGISTERS["a16"]
    for size, several in ((256, candidates.SMALL_HEAD_TILES), (512, candidates.LARGE_HEAD_TILES)):
        assert all(tile.rows * size // (32 * tile.warps) < 255 for tile in several)
    for tile in (*candidates.LINEAR_TILES, *candidates.OVERLAPPED_TILES, *candidates.SOFT_TILES):
        assert tile.rows * tile.columns // (32 * tile.warps) < 255


def test_experts_in_bf16_are_as_wide_as_their_tiles_say() -> None:
    """They take 64 columns whatever the tile says: other tiles would be timed twice, under two names."""
    from quant.cuda.experts import COLUMNS

    assert {tile.down_columns for tile in candidates.UNQUANTIZED_TILES} == {COLUMNS}


def test_a_tile_is_divided_where_something_sums_the_parts() -> None:
    tile = Tile(64, 64, 4, stages=4)
    divided = divisions_of(tile, summed=True)
    assert [one.parts for one in divided if isinstance(one, Tile)] == [1, 2, 3, 4]
    assert all(isinstance(one, Tile) and one.stages == 4 for one in divided)
    assert not divisions_of(tile, summed=False) and not divisions_of(ExpertTile(16, 16), summed=True)
    split = divisions_of(AttentionTile(32, 64, 4), summed=False)
    assert [one.splits for one in split if isinstance(one, AttentionTile)] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("tile", "name"),
    [
        (Tile(64, 128, 8, stages=4, overlaps=True), "64 × 128, overlaps, 8 warps, 4 stages"),
        (Tile(64, 64, 4, parts=2), "64 × 64, 2 parts, 4 warps, 3 stages"),
        (AttentionTile(64, 32, 8, splits=4), "64 rows, 32 keys, 4 splits, 8 warps, 2 stages"),
        (ExpertTile(16, 32), "16 or 32 × 64, down 128, 4 warps, 3 stages"),
        (
            ExpertTile(32, 32, byte_table=True, by_warp=True, side_by_side=True, fetched=4),
            "32 × 64, down 128, table of bytes, by warp, side by side, 4 fetched, 4 warps, 3 stages",
        ),
    ],
)
def test_its_name_says_what_it_is(tile: candidates.AnyTile, name: str) -> None:
    assert tile_name(tile) == name
