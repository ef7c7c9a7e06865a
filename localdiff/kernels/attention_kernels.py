"""Device code: attention of rows to cached positions and to each other; heads that share a key share its load.

    rows of a program     consecutive rows times the G query heads of one key-value head
    keys of a program     [ cached slots that are held | new rows ], cut into tiles; a split takes its share of them

    attention   a split's softmax, relative to its own largest score; with one split that is the output
    combine     the splits of a row, combined in order
    write       commit rows into the cache, once all rows have read it

What a row may see is one rule over positions (`localdiff.model.attention` has the masks that it stands for): all canvas
rows are at the position after the last commit row, and a row sees keys up to its own position within the window.
How many positions are held is read on the device. The order of all sums is fixed: the same rows give the same bits.
Shape letters: N rows (C commit + L canvas), H query heads, K key-value heads, G = H / K, d head size, S splits.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)
_LENGTHS = ("length", "rows", "commit_rows", "slots")
"""Not specialized, as they differ by prompt: Triton would recompile where one of them is 1 or a multiple of 16."""


@triton.jit(do_not_specialize=_LENGTHS)
def attention_kernel(
    q,
    new_keys,
    new_values,
    keys,
    values,
    length,
    out,
    peaks,
    masses,
    rows,
    commit_rows,
    slots,
    window,
    q_row,
    q_head,
    new_row,
    new_head,
    cached_head,
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
        q: [H, N, d]; new_keys, new_values: [K, N, d], of the rows themselves; strides of rows and heads are given.
        keys, values: [K, slots, d], the cache as it was before this pass; slot of position p is `p % slots`.
        length: int32 or int64, one number: positions held.
        out: with one split [N, H, d], the output; else fp32 [S, N, H, d], sums of values relative to `peaks`.
        peaks, masses: fp32 [S, N, H], largest score (in powers of 2) and sum of exponentials; untouched with one split.
        window: positions that a row sees, itself included, where it is WINDOWED; else slots are positions.
    """
    head = tl.program_id(1)
    split = tl.program_id(2)
    held_in_all = tl.load(length).to(tl.int32)
    first = tl.program_id(0) * ROWS
    member = first + tl.arange(0, ROWS)
    row = member // GROUP
    is_row = row < rows
    q_heads = head * GROUP + member % GROUP
    column = tl.arange(0, WIDTH)
    is_column = column < SIZE

    # All canvas rows and keys are at one position: the first after the commit rows.
    position = held_in_all + tl.minimum(row, commit_rows)
    q_at = row * q_row + q_heads * q_head
    query = tl.load(q + q_at[:, None] + column[None, :], mask=is_row[:, None] & is_column[None, :], other=0.0)

    held = tl.minimum(held_in_all, slots)
    newest, around = held_in_all - 1, tl.maximum(slots, 1)
    last_row = tl.minimum((first + ROWS - 1) // GROUP, rows - 1)
    seen_new = tl.where(last_row < commit_rows, last_row + 1, rows)
    old_tiles = (held + KEYS - 1) // KEYS
    tiles = old_tiles + (seen_new + KEYS - 1) // KEYS
    share = (tiles + SPLITS - 1) // SPLITS
    head64 = head.to(tl.int64)
    old_k, old_v = keys + head64 * cached_head, values + head64 * cached_head
    new_k, new_v = new_keys + head64 * new_head, new_values + head64 * new_head

    peak = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    mass = tl.zeros([ROWS], dtype=tl.float32)
    total = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    for tile in range(split * share, tl.minimum((split + 1) * share, tiles)):
        is_new = tile >= old_tiles
        index = tl.where(is_new, tile - old_tiles, tile) * KEYS + tl.arange(0, KEYS)
        is_key = index < tl.where(is_new, seen_new, held)
        stride = tl.where(is_new, new_row, SIZE)
        at = (index * stride)[:, None] + column[None, :]
        inside = is_key[:, None] & is_column[None, :]
        key = tl.load(tl.where(is_new, new_k, old_k) + at, mask=inside, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * _LOG2E
        of_slot = newest - (newest - index) % around if WINDOWED else index
        of_key = tl.where(is_new, held_in_all + tl.minimum(index, commit_rows), of_slot)
        distance = position[:, None] - of_key[None, :]
        seen = is_key[None, :] & (distance >= 0)
        if WINDOWED:
            seen = seen & (distance < window)
        score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - base[:, None])
        shrink = tl.exp2(peak - base)
        mass = mass * shrink + tl.sum(weight, axis=1)
        value = tl.load(tl.where(is_new, new_v, old_v) + at, mask=inside, other=0.0)
        total = tl.dot(weight.to(value.dtype), value, total * shrink[:, None], input_precision="ieee")
        peak = higher

    place = row * HEADS + q_heads
    if SPLITS == 1:
        total = total / tl.where(mass > 0.0, mass, 1.0)[:, None]
    else:
        pairs = rows * HEADS
        tl.store(peaks + split * pairs + place, peak, mask=is_row)
        tl.store(masses + split * pairs + place, mass, mask=is_row)
        out += split.to(tl.int64) * pairs * SIZE
    to = out + place[:, None] * SIZE + column[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit(do_not_specialize=("pairs",))
def combine_kernel(partial, peaks, masses, out, pairs, SIZE: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr):
    """Combines splits [S, N, H, d] into the output [N, H, d]; `pairs` is N · H. Grid: (N · H,)."""
    place = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    highest = tl.load(peaks + place)
    for split in tl.static_range(1, SPLITS):
        highest = tl.maximum(highest, tl.load(peaks + split * pairs + place))
    mass = 0.0
    total = tl.zeros([WIDTH], dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        at = split * pairs + place
        factor = tl.exp2(tl.load(peaks + at) - highest)
        mass += tl.load(masses + at) * factor
        total += tl.load(partial + at * SIZE + column, mask=inside, other=0.0) * factor
    tl.store(out + place * SIZE + column, (total / mass).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_LENGTHS)
def write_kernel(
    new_keys,
    new_values,
    keys,
    values,
    length,
    commit_rows,
    slots,
    new_row,
    new_head,
    cached_head,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Writes keys and values of commit rows to their slots; of more rows than slots the last. Grid: (C, K)."""
    row = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    if row < commit_rows - slots:
        return
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    slot = (tl.load(length).to(tl.int32) + row) % slots
    here = head * new_head + row * new_row + column
    there = head * cached_head + slot.to(tl.int64) * SIZE + column
    tl.store(keys + there, tl.load(new_keys + here, mask=inside), mask=inside)
    tl.store(values + there, tl.load(new_values + here, mask=inside), mask=inside)
