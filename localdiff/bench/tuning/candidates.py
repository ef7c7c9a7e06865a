"""The tiles that are tried for a product, and their names.

Knows kinds of products and what a GPU's matrix instruction can do; knows no clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from localdiff.kernels.attention import MAX_SPLITS, AttentionTile
from localdiff.timed_tiles import AnyTile
from quant.cuda.tiles import MAX_PARTS, ExpertTile, MmaKind, Tile
from quant.cuda.timed import Product

EXPERT_TILES = (
    *(ExpertTile(rows, rows, stages=stages) for rows in (16, 32, 64) for stages in (2, 3, 4)),
    *(ExpertTile(rows, rows, down_columns=64) for rows in (16, 32)),
    *(ExpertTile(rows, rows, warps=8) for rows in (16, 32, 64)),
    *(ExpertTile(rows, rows, side_by_side=True) for rows in (16, 32)),
)
BYTE_TABLE_TILES = (
    *(
        ExpertTile(rows, rows, stages=stages, byte_table=True, by_warp=by_warp)
        for by_warp, shapes in (
            (False, ((16, 2), (16, 3), (32, 2), (32, 3), (32, 4), (64, 2))),
            (True, ((16, 3), (16, 4), (32, 2), (32, 3), (32, 4), (64, 2), (64, 3))),
        )
        for rows, stages in shapes
    ),
    *(
        ExpertTile(32, 32, stages=4, byte_table=True, by_warp=by_warp, side_by_side=side_by_side, fetched=fetched)
        for by_warp, side_by_side, fetched in itertools.product((False, True), (False, True), (0, 4, 8))
        if side_by_side or fetched
    ),
    *(
        ExpertTile(rows, rows, warps=warps, stages=stages, byte_table=True, overlaps=True)
        for warps in (4, 8)
        for rows, stages in ((16, 8), (32, 6), (64, 4))
    ),
)
"""For nf4, if the usual tile also has a table of bytes. Tiles that overlap have enough stages to take more than 48 KiB:
below that, Triton does not ask the driver for the additional memory of the table."""
UNQUANTIZED_TILES = (
    *(ExpertTile(rows, rows, down_columns=64, stages=stages) for rows in (16, 32, 64) for stages in (2, 3, 4)),
    *(ExpertTile(rows, rows, down_columns=64, warps=8) for rows in (16, 32)),
)
"""Experts in bf16 have 64 columns in their down projection, too, whatever a tile says."""
LINEAR_TILES = (
    *(Tile(rows, 64, 4, stages=stages) for rows in (32, 64, 128) for stages in (3, 4)),
    *(Tile(rows, 128, 8, stages=stages) for rows in (64, 128) for stages in (3, 4)),
    *(Tile(rows, 128, 4) for rows in (64, 128)),
    Tile(256, 64, 4),
    Tile(256, 128, 8),
)
OVERLAPPED_TILES = (
    *(Tile(rows, 64, 4, stages=4, overlaps=True) for rows in (64, 128)),
    *(Tile(rows, 128, 8, stages=4, overlaps=True) for rows in (64, 128)),
    Tile(256, 64, 4, overlaps=True),
)
GATED_TILES = tuple(
    Tile(rows, 64, warps, stages=stages)
    for rows, warps in ((32, 4), (32, 8), (64, 4), (64, 8), (128, 8))
    for stages in (3, 4)
)
"""128 rows of gate and up, with four warps, are sums in 128 registers: all that a thread has there."""
OVERLAPPED_GATED_TILES = tuple(Tile(rows, 64, 8, stages=4, overlaps=True) for rows in (32, 64))
SOFT_TILES = (
    *(Tile(rows, 64, 4, stages=stages) for rows in (64, 128) for stages in (2, 3)),
    *(Tile(rows, 128, 8, stages=stages) for rows in (64, 128, 256) for stages in (2, 3)),
)
SMALL_HEAD_TILES = (
    *(
        AttentionTile(rows, keys, warps, stages)
        for rows, warps in ((32, 4), (32, 8), (64, 4), (64, 8), (128, 8))
        for keys in (32, 64)
        for stages in (1, 2, 3)
    ),
    AttentionTile(128, 32, 8, stages=4),
)
"""The sums of 128 rows, with four warps and a head of 256, would be 256 registers of a thread, which has 255."""
LARGE_HEAD_TILES = tuple(
    AttentionTile(rows, keys, 8, stages) for rows in (32, 64) for keys in (16, 32, 64) for stages in (1, 2)
)


def tiles_for(product: Product, usual: AnyTile, kind: MmaKind) -> Sequence[AnyTile]:
    """The tiles that a product may take, besides its usual one."""
    overlapped = kind == "wgmma" and product.weights == "w8a16" and product.kind != "head"
    several: Sequence[AnyTile]
    if isinstance(usual, AttentionTile):
        several = SMALL_HEAD_TILES if product.columns <= 256 else LARGE_HEAD_TILES
    elif isinstance(usual, ExpertTile):
        several = EXPERT_TILES if product.weights.startswith("w") else UNQUANTIZED_TILES
        has_table = usual.byte_table and "w4" in product.weights and "no table" not in product.weights
        several += BYTE_TABLE_TILES * has_table
    elif product.kind == "soft":
        several = SOFT_TILES
    elif product.kind == "gated":
        several = GATED_TILES + OVERLAPPED_GATED_TILES * overlapped
    else:
        several = LINEAR_TILES + OVERLAPPED_TILES * overlapped
    return [
        tile for tile in several if tile != usual and not (isinstance(tile, Tile) and product.columns % tile.columns)
    ]


def divisions_of(tile: AnyTile, *, summed: bool) -> Sequence[AnyTile]:
    """The same tile among other numbers of programs: parts of K of a linear layer, splits of the keys of attention.

    Args:
        summed: whether something sums the parts of the product.
    """
    if isinstance(tile, AttentionTile):
        numbers = [1 << power for power in range(MAX_SPLITS.bit_length())]
        return [replace(tile, splits=number) for number in numbers if number != tile.splits]
    if summed and isinstance(tile, Tile):
        return [replace(tile, parts=number) for number in range(1, MAX_PARTS + 1)]
    return []


def tile_name(tile: AnyTile) -> str:
    """A tile, in words."""
    if isinstance(tile, ExpertTile):
        rows = str(tile.few_rows) if tile.few_rows == tile.many_rows else f"{tile.few_rows} or {tile.many_rows}"
        shape = f"{rows} × 64, down {tile.down_columns}"
        options = {
            "table of bytes": tile.byte_table,
            "by warp": tile.by_warp,
            "overlaps": tile.overlaps,
            "side by side": tile.side_by_side,
            f"{tile.fetched} fetched": tile.fetched > 0,
        }
    elif isinstance(tile, Tile):
        shape = f"{tile.rows} × {tile.columns}"
        options = {"overlaps": tile.overlaps, f"{tile.parts} parts": tile.parts > 0}
    else:
        shape = f"{tile.rows} rows, {tile.keys} keys"
        options = {f"{tile.splits} splits": tile.splits > 0}
    chosen = [name for name, is_chosen in options.items() if is_chosen]
    return ", ".join([shape, *chosen, f"{tile.warps} warps", f"{tile.stages} stages"])
