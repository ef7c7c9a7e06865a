"""Tile shapes of the GEMM kernels, by the matrix instruction of a GPU.

With `mma.sync`, each warp fetches its own operands. A quantized tile of a weight takes two dots there, one with its low
and one with its high codes, and Triton lays out the warps of chained dots along one axis only: warps side by side along
the rows would each decode the same weights, up to eight times over. So tiles are wider than they are tall. With
`wgmma`, four warps share 64 columns, and a tile of four warps decodes each of its weights once, however tall it is. For
`wgmma`, and activations in their own type, the choices follow what an H100 took (`docs/gpu-measured.md`); all others
follow the counts of `tests.bench.inner_loops`, and have not been timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import torch

Activations: TypeAlias = Literal["a16", "a8"]
MmaKind: TypeAlias = Literal["mma.sync", "wgmma", "tcgen05"]
"""A GPU's matrix instruction: of one warp, of a warpgroup of four, or with accumulators in tensor memory."""

MMA_KIND_BY_MAJOR: dict[int, MmaKind] = {9: "wgmma", 10: "tcgen05", 11: "tcgen05"}
"""Major compute capability to matrix instruction: Hopper, and Blackwell in data centers and in Jetson Thor; all others
have `mma.sync`."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of a program's result, and its warps.

    Attributes:
        programs_per_sm: this tile is taken only if there are at least this many programs per SM; 0 for any number.
        stages: iterations of the loop that are in flight at a time.
        overlaps: whether the next weights are decoded while the last ones are multiplied (`overlapped_kernels`), with
            `wgmma`, bf16, and int8 in the order of lanes. It has not been timed.
        parts: of K, where the next kernel can sum them; 0 for as many as `parts_of` says.
    """

    rows: int
    columns: int
    warps: int
    programs_per_sm: float = 0.0
    stages: int = 3
    overlaps: bool = False
    parts: int = 0


@dataclass(frozen=True, slots=True)
class ExpertTile:
    """Rows and columns of a program in the GEMMs over experts, and its warps.

    Attributes:
        few_rows, many_rows: of a block, if an expert gets few rows on average, and if it gets many.
        few: the largest average that counts as few; by default `few_rows`.
        few_by_table: the same where a table of bytes decodes weights; by default as many as `few`.
        down_columns: of the down projection, if its weight is quantized and they divide its width: the overhead of a
            loop iteration apart from decoding is then spread over twice as many weights. The gate and the up projection
            have 64, a group of the input of the down projection.
        stages: iterations of the loop that are in flight at a time.
        byte_table: whether blocks of few rows look nf4 up in a table of bytes (`nf4_kernels`), if activations are bf16.
            With `wgmma`, those of more rows have no room: Triton, which does not know of the table, asks the driver for
            more than 48 KiB of shared memory only if its own part exceeds them.
        by_warp: whether a warp then multiplies on its own, by `mma.sync`, where four could by `wgmma`.
        side_by_side: whether programs of one block are neighbours in the grid; otherwise those of the same columns are.
        fetched: how many groups of 64 inputs ahead nf4 is fetched to the L2 cache, where its codes are in the order of
            lanes; 0 for no fetching ahead.
        overlaps: whether, with a table of bytes, the next weights are decoded while the last ones are multiplied
            (`overlapped_expert_kernels`); nothing is then fetched ahead, as copies to shared memory are.

    The last four have not been timed.
    """

    few_rows: int
    many_rows: int
    few: int | None = None
    few_by_table: int | None = None
    down_columns: int = 128
    warps: int = 4
    stages: int = 3
    byte_table: bool = False
    by_warp: bool = False
    side_by_side: bool = False
    fetched: int = 0
    overlaps: bool = False

    def rows(self, pairs: int, experts: int, *, by_table: bool = False) -> int:
        """Rows of a block for `pairs` pairs of row and expert; `by_table` if blocks of few rows may use a table."""
        few = self.few_rows if self.few is None else self.few
        if by_table and self.few_by_table is not None:
            few = self.few_by_table
        return self.few_rows if pairs <= few * experts else self.many_rows


_FOUR_WARPS = (Tile(16, 64, 4), Tile(64, 64, 4), Tile(128, 64, 4), Tile(128, 128, 8, programs_per_sm=0.75))
LINEAR: dict[MmaKind, tuple[Tile, ...]] = {
    "mma.sync": (Tile(16, 64, 4), Tile(32, 64, 4), Tile(64, 128, 8), Tile(128, 128, 8, programs_per_sm=2)),
    "wgmma": (*_FOUR_WARPS, Tile(256, 64, 4, programs_per_sm=16)),
    "tcgen05": _FOUR_WARPS,
}
"""The last tiles of each are for weights of many rows. With 128 × 128, a MFLOP of the result reads 12 KB of activations
and codes from the L2 cache, with the tile before it 16 to 20 KB, and fewer weights are decoded twice. With 256 × 64 no
weight of the head is decoded twice in a step. The tensor cores of RTX GPUs take 5 to 14 ns for a MFLOP (the rates are
those of `docs/decisions/0022-dense-weights-from-their-codes.md`), and there the tile must not leave half of an SM's
warp slots empty: it is for the head, and for some weights in a step with a commit."""
_GATED_A8 = (Tile(16, 64, 4), Tile(32, 64, 4))
GATED: dict[MmaKind, dict[Activations, tuple[Tile, ...]]] = {
    "mma.sync": {"a16": (Tile(16, 64, 4), Tile(32, 64, 4)), "a8": _GATED_A8},
    "wgmma": {"a16": (Tile(16, 64, 4), Tile(64, 64, 8, stages=4)), "a8": _GATED_A8},
    "tcgen05": {"a16": (Tile(16, 64, 4), Tile(64, 64, 4)), "a8": _GATED_A8},
}
"""Columns are the gate's; a program has as many of the up projection. 64 rows in int8 spill registers on some GPUs.
Four warps of an H100 multiply 64 of a weight's rows, so eight multiply those of the gate and the up projection."""
EXPERTS: dict[MmaKind, dict[Activations, ExpertTile]] = {
    "mma.sync": {"a16": ExpertTile(16, 32), "a8": ExpertTile(32, 32)},
    "wgmma": {"a16": ExpertTile(32, 64, few=16, few_by_table=32, stages=4, byte_table=True), "a8": ExpertTile(32, 32)},
    "tcgen05": {"a16": ExpertTile(32, 64), "a8": ExpertTile(32, 32)},
}
"""Uniform routing of 256 rows gives each of 128 experts 16 on average; rows that do not fit into a block decode the
expert's weights again, and empty rows keep tensor cores busy. With `wgmma`, decoding 64 columns is as long a loop for
16 rows as for 32. On an H100 blocks of 32 rows take less time for 16 rows on average, and with a table of bytes for 32
as well; without one blocks of 64 do. Averages in between have not been timed; another size there would be one more
kernel to compile before a first run."""


DOWN_TILES_PER_TABLE = 2
"""Tiles of the down projection that a program with a table of bytes computes one after the other. A tile has 11
iterations in the released model. By the count of what is stored, filling a table takes as long as 1.5 iterations."""

PARTS_PER_SM: dict[MmaKind, float] = {"mma.sync": 0.0, "wgmma": 2.0, "tcgen05": 0.0}
"""Programs that an SM should have; to reach them, products of weights with few rows are cut into parts; 0 for never."""
MAX_PARTS = 4
MIN_GROUPS = 8
"""Fewest groups of 64 inputs per part, on average."""


def parts_of(programs: int, groups: int, device: torch.device) -> int:
    """Number of parts to cut a product into that would take `programs` programs, each summing `groups` groups."""
    wanted = round(PARTS_PER_SM[mma_kind(device)] * sm_count(device) / programs)
    return max(1, min(wanted, MAX_PARTS, groups // MIN_GROUPS))


@lru_cache(maxsize=8)
def mma_kind(device: torch.device) -> MmaKind:
    """The matrix instruction of a GPU; any other device, as in Triton's interpreter, counts as `mma.sync`."""
    if device.type != "cuda":
        return "mma.sync"
    return MMA_KIND_BY_MAJOR.get(torch.cuda.get_device_capability(device)[0], "mma.sync")


@lru_cache(maxsize=8)
def sm_count(device: torch.device) -> int:
    """SMs of a GPU; any other device has one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def tile_of(rows: int, columns: int, tiles: Sequence[Tile], sms: int | None = None) -> Tile:
    """The last tile whose `programs_per_sm` is reached, if its rows are over half full.

    Otherwise the smallest tile that holds all rows, or else the largest. Only tiles that divide the columns count.

    Args:
        sms: number of SMs that share the programs; None leaves out tiles with a `programs_per_sm`.
    """
    usable = [tile for tile in tiles if columns % tile.columns == 0]
    for tile in reversed(usable):
        programs = columns // tile.columns * -(-rows // tile.rows)
        if sms and tile.programs_per_sm and 2 * rows > tile.rows and programs >= tile.programs_per_sm * sms:
            return tile
    unconditional = [tile for tile in usable if not tile.programs_per_sm]
    return next((tile for tile in unconditional if rows <= tile.rows), unconditional[-1])
