"""Device code: attention of rows to cached positions and to each other; heads that share a key share its load.

    rows of a program     consecutive rows times the G query heads of one key-value head
    keys of a program     [ filled cache slots | new rows ], cut into tiles; a split takes its share of the tiles

    attention   online softmax over the tiles of a split; with one split that is the output
    combine     merges the splits of a row, in order
    write       commit rows into the cache, once all rows have read it

What a row may see is one rule over positions (`localdiff.model.attention` has the masks that it stands for): all canvas
rows are at the position after the last commit row, and a row sees keys up to its own position within the window.
The number of cached positions is read on the device. All sums have a fixed order: the same rows give the same bits.
Shape letters: N rows (C commit + L canvas), H query heads, K key-value heads, G = H / K, d head size, S splits.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)
_LENGTHS = ("length", "rows", "commit_rows", "slots")
"""Not specialized, as they differ from prompt to prompt: Triton would recompile when one is 1 or a multiple of 16."""


@triton.jit(do_not_specialize=_LENGTHS)
def attention_kernel(
    q,
    new_keys,
    new_values,
    keys,
    values,
    length,
    out,
    row_maxes,
    row_sums,
    rows,
    commit_rows,
    slots,
    window,
    q_row_stride,
    q_head_stride,
    new_row_stride,
    new_head_stride,
    cached_head_stride,
    WINDOWED: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Grid: (N · G / ROWS rounded up, K, S). SIZE is d, WIDTH is d rounded up to a power of 2.

    Args:
        q: [H, N, d]; new_keys, new_values: [K, N, d], of the rows themselves.
        keys, values: [K, slots, d], the cache as it was before this pass; slot of position p is `p % slots`.
        length: int32 or int64, one number: cached positions.
        out: with one split [N, H, d], the output; else fp32 [S, N, H, d], not yet divided by `row_sums`.
        row_maxes, row_sums: fp32 [S, N, H], running maximum (of scores times log2 e) and sum of the online softmax;
            not written with one split.
        window: positions that a row sees, itself included, where it is WINDOWED; otherwise slots are positions.
    """
    head = tl.program_id(1)
    split = tl.program_id(2)
    cached_length = tl.load(length).to(tl.int32)
    first = tl.program_id(0) * ROWS
    folded_row = first + tl.arange(0, ROWS)  # row * GROUP + query head within the group
    row = folded_row // GROUP
    is_row = row < rows
    q_head = head * GROUP + folded_row % GROUP
    column = tl.arange(0, WIDTH)
    is_column = column < SIZE

    # All canvas rows and keys are at one position: the first after the commit rows.
    row_position = cached_length + tl.minimum(row, commit_rows)
    q_offset = row * q_row_stride + q_head * q_head_stride
    query = tl.load(q + q_offset[:, None] + column[None, :], mask=is_row[:, None] & is_column[None, :], other=0.0)

    filled_slots = tl.minimum(cached_length, slots)
    newest = cached_length - 1
    newest_slot = newest % tl.maximum(slots, 1)
    last_row = tl.minimum((first + ROWS - 1) // GROUP, rows - 1)
    new_count = tl.where(last_row < commit_rows, last_row + 1, rows)  # new keys that any of these rows sees
    cached_tiles = (filled_slots + KEYS - 1) // KEYS
    tiles = cached_tiles + (new_count + KEYS - 1) // KEYS
    tiles_per_split = (tiles + SPLITS - 1) // SPLITS
    head64 = head.to(tl.int64)
    cached_k, cached_v = keys + head64 * cached_head_stride, values + head64 * cached_head_stride
    new_k, new_v = new_keys + head64 * new_head_stride, new_values + head64 * new_head_stride

    row_max = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros([ROWS], dtype=tl.float32)
    acc = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    for tile in range(split * tiles_per_split, tl.minimum((split + 1) * tiles_per_split, tiles)):
        is_new = tile >= cached_tiles
        index = tl.where(is_new, tile - cached_tiles, tile) * KEYS + tl.arange(0, KEYS)
        is_key = index < tl.where(is_new, new_count, filled_slots)
        stride = tl.where(is_new, new_row_stride, SIZE)
        kv_offset = (index * stride)[:, None] + column[None, :]
        kv_mask = is_key[:, None] & is_column[None, :]
        key = tl.load(tl.where(is_new, new_k, cached_k) + kv_offset, mask=kv_mask, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * _LOG2E
        # Slots up to the newest one's were written in this turn of the ring, those behind it in the turn before.
        older = tl.where(index > newest_slot, slots, 0)
        slot_position = newest - newest_slot + index - older if WINDOWED else index
        key_position = tl.where(is_new, cached_length + tl.minimum(index, commit_rows), slot_position)
        distance = row_position[:, None] - key_position[None, :]
        visible = is_key[None, :] & (distance >= 0)
        if WINDOWED:
            visible = visible & (distance < window)
        score = tl.where(visible, score, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(score, axis=1))
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)  # no key seen so far: avoids -inf - -inf
        p = tl.exp2(score - safe_max[:, None])
        alpha = tl.exp2(row_max - safe_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        value = tl.load(tl.where(is_new, new_v, cached_v) + kv_offset, mask=kv_mask, other=0.0)
        acc = tl.dot(p.to(value.dtype), value, acc * alpha[:, None], input_precision="ieee")
        row_max = new_max

    row_head = row * HEADS + q_head
    if SPLITS == 1:
        acc = acc / tl.where(row_sum > 0.0, row_sum, 1.0)[:, None]
    else:
        row_heads = rows * HEADS
        tl.store(row_maxes + split * row_heads + row_head, row_max, mask=is_row)
        tl.store(row_sums + split * row_heads + row_head, row_sum, mask=is_row)
        out += split.to(tl.int64) * row_heads * SIZE
    target = out + row_head[:, None] * SIZE + column[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit(do_not_specialize=("row_heads",))
def combine_kernel(
    partial, row_maxes, row_sums, out, row_heads, SIZE: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr
):
    """Merges splits [S, N, H, d] into the output [N, H, d]; `row_heads` is N · H. Grid: (N · H,)."""
    row_head = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    is_column = column < SIZE
    row_max = tl.load(row_maxes + row_head)
    for split in tl.static_range(1, SPLITS):
        row_max = tl.maximum(row_max, tl.load(row_maxes + split * row_heads + row_head))
    row_sum = 0.0
    acc = tl.zeros([WIDTH], dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        offset = split * row_heads + row_head
        alpha = tl.exp2(tl.load(row_maxes + offset) - row_max)
        row_sum += tl.load(row_sums + offset) * alpha
        acc += tl.load(partial + offset * SIZE + column, mask=is_column, other=0.0) * alpha
    tl.store(out + row_head * SIZE + column, (acc / row_sum).to(out.dtype.element_ty), mask=is_column)


@triton.jit(do_not_specialize=_LENGTHS)
def write_kernel(
    new_keys,
    new_values,
    keys,
    values,
    length,
    commit_rows,
    slots,
    new_row_stride,
    new_head_stride,
    cached_head_stride,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Writes keys and values of commit rows to their slots; if there are more rows than slots, the last ones only.

    Grid: (C, K).
    """
    row = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    if row < commit_rows - slots:
        return
    column = tl.arange(0, WIDTH)
    is_column = column < SIZE
    slot = (tl.load(length).to(tl.int32) + row) % slots
    source = head * new_head_stride + row * new_row_stride + column
    target = head * cached_head_stride + slot.to(tl.int64) * SIZE + column
    tl.store(keys + target, tl.load(new_keys + source, mask=is_column), mask=is_column)
    tl.store(values + target, tl.load(new_values + source, mask=is_column), mask=is_column)
