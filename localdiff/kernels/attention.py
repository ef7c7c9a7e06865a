"""Triton attention of `[commit rows | canvas rows]`: what `localdiff.model.attention` does, in one or two launches.

Keys and values of the rows are read from the projections' output and those of the cache in place; nothing is
concatenated, and the number of cached positions is read on the device, so that the same launch serves every length.
256 rows over few key-value heads give little parallelism: where that makes fewer programs than the GPU has SMs, the
keys are split among several programs, and a second launch combines their partial results.
Shape letters: N rows (C commit + L canvas), H query heads, K key-value heads, T slots, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.cuda import tiles
from quant.cuda.launch_arguments import on_device_of, power_of_two
from quant.cuda.tiles import MmaKind
from quant.cuda.timed import Product, tile_of_product
from quant.dtypes import short_name

MAX_HEAD_DIM = 512
"""With larger heads, a program's rows and keys would not fit the shared memory of every GPU, in two-byte types."""
MAX_SPLITS = 8
_REACH = 1 << 31
"""Limit of offsets from the first row, which have 32 bits in the kernels."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Rows and keys that a program takes at a time, its warps, and iterations that are in flight at a time.

    Attributes:
        splits: programs that the keys of a row are split among; 0 for as many as fill the GPU.
    """

    rows: int
    keys: int
    warps: int
    stages: int = 2
    splits: int = 0


SMALL_HEADS: dict[MmaKind, AttentionTile] = {
    "mma.sync": AttentionTile(32, 32, 4, stages=3),
    "wgmma": AttentionTile(128, 32, 8, stages=3),
    "tcgen05": AttentionTile(64, 32, 4),
}
"""Head sizes up to 256. `quant.cuda.tiles` says why tiles depend on the GPU. The one for an H100 was the fastest of
those timed there. With two stages, keys and values have one buffer: a tile is copied once the one before it is done
with, and waited for at once. Three stages of 64 keys have no room on an RTX GPU."""
LARGE_HEADS: dict[MmaKind, AttentionTile] = {
    "mma.sync": AttentionTile(32, 32, 8),
    "wgmma": AttentionTile(64, 32, 8),
    "tcgen05": AttentionTile(32, 32, 8),
}
"""Head sizes up to 512: at most 100 KB of shared memory on GPUs that have 101. With 64 rows an H100's matrix
instructions read keys from shared memory once; with fewer, every warp does. On a B200, 64 rows spill."""


def can_attend(dtype: torch.dtype, head_dim: int) -> bool:
    """Whether a GPU has the shared memory for rows of this dtype and size."""
    return dtype.itemsize == 2 and head_dim <= MAX_HEAD_DIM


def attend_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    length: Tensor,
    commit_rows: int,
    window: int | None,
    splits: int | None = None,
) -> Tensor:
    """Attends rows to what they see of the cache and of each other; writes only the output.

    Args:
        q: [H, N, d]; k, v: [K, N, d], each row contiguous.
        keys, values: [K, T, d], slots as they were before this pass: position p is in slot `p % T`.
        length: integer scalar on the device, cached positions.
        commit_rows: C, how many of the N rows are commit rows. They come first, at the positions from `length` on, and
            are causal among themselves; the other rows come after them and see each other.
        window: positions that a row sees, itself included (all canvas rows see the same); None sees everything.
        splits: number of programs that the keys of a row are split among; by default as many as fill the GPU.

    Returns:
        [H, N, d] in the dtype of `q`, a view of [N, H, d].

    Raises:
        ValueError: there are too many rows for one pass: more than 262,144 for the released model.
    """
    from localdiff.kernels.attention_kernels import attention_kernel, combine_kernel

    heads, rows, size = q.shape
    kv_heads = k.shape[0]
    group = heads // kv_heads
    k, v = _alike(k, v)
    if q.stride(-1) != 1:
        q = q.contiguous()
    most = _REACH // max(heads * size, q.stride(1), k.stride(1))
    if rows > most:
        raise ValueError(f"{rows=} should be at most {most}: give them in several passes")
    out = q.new_empty(rows, heads, size)
    if not rows:
        return out.transpose(0, 1)
    usual = (SMALL_HEADS if size <= 256 else LARGE_HEADS)[tiles.mma_kind(q.device)]
    product = Product(
        kind="attention", weights="", dtype=short_name(q.dtype), rows=rows, columns=size, inputs=window or 0
    )
    tile = tile_of_product(product, q.device, usual)
    programs = -(-rows * group // tile.rows) * kv_heads
    splits = splits or tile.splits or _splits(programs, q.device)
    partial, row_stats = out, out
    if splits > 1:
        partial = q.new_empty(splits, rows, heads, size, dtype=torch.float32)
        row_stats = q.new_empty(2, splits, rows, heads, dtype=torch.float32)
    width = _width(size)
    with on_device_of(q):
        attention_kernel[(programs // kv_heads, kv_heads, splits)](
            q,
            k,
            v,
            keys,
            values,
            length,
            partial,
            row_stats[0],
            row_stats[-1],
            rows,
            commit_rows,
            keys.shape[1],
            window or 0,
            q.stride(1),
            q.stride(0),
            k.stride(1),
            k.stride(0),
            keys.stride(0),
            WINDOWED=window is not None,
            HEADS=heads,
            GROUP=group,
            SIZE=size,
            WIDTH=width,
            SPLITS=splits,
            ROWS=tile.rows,
            KEYS=tile.keys,
            num_warps=tile.warps,
            num_stages=tile.stages,
            enable_fp_fusion=True,
        )
        if splits > 1:
            row_heads = rows * heads
            combine_kernel[(row_heads,)](
                partial,
                row_stats[0],
                row_stats[1],
                out,
                row_heads,
                SIZE=size,
                WIDTH=width,
                SPLITS=splits,
                num_warps=4,
                enable_fp_fusion=True,
            )
    return out.transpose(0, 1)


def write_cached(k: Tensor, v: Tensor, *, keys: Tensor, values: Tensor, length: Tensor, commit_rows: int) -> None:
    """Stores the first `commit_rows` of [K, N, d] after the cached positions; arguments as in `attend_rows`."""
    from localdiff.kernels.attention_kernels import write_kernel

    kv_heads, slots, size = keys.shape
    if not (commit_rows and slots):
        return
    k, v = _alike(k, v)
    with on_device_of(k):
        write_kernel[(commit_rows, kv_heads)](
            k,
            v,
            keys,
            values,
            length,
            commit_rows,
            slots,
            k.stride(1),
            k.stride(0),
            keys.stride(0),
            SIZE=size,
            WIDTH=_width(size),
            num_warps=1,
            enable_fp_fusion=True,
        )


def _alike(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the same strides and contiguous rows, copied if they are not."""
    if k.stride(-1) == 1 and k.stride() == v.stride():
        return k, v
    return k.contiguous(), v.contiguous()


def _width(size: int) -> int:
    """A head's size rounded up to a power of 2, at least 16 as matmuls of tiles require."""
    return max(16, power_of_two(size))


def _splits(programs: int, device: torch.device) -> int:
    """Number of splits with at most one program per SM: an SM holds no more than one.

    Each number of splits is compiled separately, so only powers of 2 are used.
    """
    most = max(1, min(MAX_SPLITS, tiles.sm_count(device) // programs))
    return 1 << (most.bit_length() - 1)
