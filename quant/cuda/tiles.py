"""Tile shapes of the GEMM kernels, by how a GPU feeds its tensor cores.

A quantized tile of a weight takes two dots, of its low and of its high codes, and Triton gives the warps of dots that
belong together one axis. Where each warp fetches its own operands (`mma.sync`), warps along the rows would all decode
the same weights, up to eight times, so tiles are wider than they are tall. Where four warps share them (`wgmma`), they
share 64 columns, and a tile of four warps decodes each of its weights once, however tall it is. The choices follow the
counts of `tests.bench.inner_loops`; nothing here has been timed on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import torch

Activations: TypeAlias = Literal["a16", "a8"]
Feeding: TypeAlias = Literal["warp", "warpgroup", "tensor memory"]
"""Who fetches the operands of a matrix instruction, or that the result has a memory of its own."""

FEEDING: dict[int, Feeding] = {9: "warpgroup", 10: "tensor memory"}
"""Major compute capabilities whose matrix instructions belong to four warps: Hopper, and Blackwell in data centers."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of a program's result, and its warps.

    Attributes:
        programs: how many of them each multiprocessor should have for this tile to be taken; 0 for any number.
    """

    rows: int
    columns: int
    warps: int
    programs: float = 0.0


_SHARED = (Tile(16, 64, 4), Tile(64, 64, 4), Tile(128, 64, 4), Tile(128, 128, 8, programs=0.75))
LINEAR: dict[Feeding, tuple[Tile, ...]] = {
    "warp": (Tile(16, 64, 4), Tile(32, 64, 4), Tile(64, 128, 8), Tile(128, 128, 8, programs=2)),
    "warpgroup": _SHARED,
    "tensor memory": _SHARED,
}
"""The last of each is for weights of many rows. A MFLOP of the result takes 12 KB of activations and codes from the L2
cache with it, 16 to 20 with the tile before, and fewer weights are decoded twice. An H100's tensor cores do a MFLOP in
1 ns, and 20 KB in that time are 20 TB/s; there the tile takes the place of two programs of four warps. The tensor cores
of RTX GPUs take 5 to 14 ns (the rates are those of `docs/decisions/0022-dense-weights-from-their-codes.md`), and there
it may not leave half of a multiprocessor's warps without work: it is for the head, and for some weights in a step with
a commit."""
_SHARED_GATED: dict[Activations, tuple[Tile, ...]] = {
    "a16": (Tile(16, 64, 4), Tile(64, 64, 4)),
    "a8": (Tile(16, 64, 4), Tile(32, 64, 4)),
}
GATED: dict[Feeding, dict[Activations, tuple[Tile, ...]]] = {
    "warp": {"a16": (Tile(16, 64, 4), Tile(32, 64, 4)), "a8": (Tile(16, 64, 4), Tile(32, 64, 4))},
    "warpgroup": _SHARED_GATED,
    "tensor memory": _SHARED_GATED,
}
"""With a gate there are twice the sums, and half the columns; 64 rows in int8 spill registers on some GPUs."""
EXPERTS: dict[Feeding, dict[Activations, tuple[int, int]]] = {
    "warp": {"a16": (16, 32), "a8": (32, 32)},
    "warpgroup": {"a16": (32, 64), "a8": (32, 32)},
    "tensor memory": {"a16": (32, 64), "a8": (32, 32)},
}
"""Rows of a block where an expert gets few, and where it gets many. Uniform routing of 256 rows gives each of 128
experts 16 on average; whatever does not fit a block decodes the expert's weights again, and empty rows keep tensor
cores busy. To `wgmma`, decoding 64 columns is as long a loop with 16 rows as with 32."""


@lru_cache(maxsize=8)
def feeding(device: torch.device) -> Feeding:
    """How a GPU feeds its tensor cores; anything else, such as Triton's interpreter, counts as `warp`."""
    if device.type != "cuda":
        return "warp"
    return FEEDING.get(torch.cuda.get_device_capability(device)[0], "warp")


@lru_cache(maxsize=8)
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; anything else has one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def tile_of(rows: int, columns: int, tiles: Sequence[Tile], processors: int | None = None) -> Tile:
    """The last tile that asks for a number of programs and gets it, if its rows are over half full.

    Otherwise the smallest tile that takes all rows, or the largest; either way of those that divide the columns.

    Args:
        processors: multiprocessors that share the programs; None leaves out tiles that ask for a number.
    """
    usable = [tile for tile in tiles if columns % tile.columns == 0]
    for tile in reversed(usable):
        programs = columns // tile.columns * -(-rows // tile.rows)
        if processors and tile.programs and 2 * rows > tile.rows and programs >= tile.programs * processors:
            return tile
    modest = [tile for tile in usable if not tile.programs]
    return next((tile for tile in modest if rows <= tile.rows), modest[-1])
