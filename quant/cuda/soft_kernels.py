"""Device code: the soft embedding under a distribution, over its probable ids alone.

    count     how many ids of a block are above the threshold, and the sum of their probabilities
    collect   those ids and their probabilities, in ascending order of ids
    mean      their embeddings, weighted and summed in that order, plus the tail times the mean row

A block without an id above the threshold is read once; only the other blocks are read again.
Shape letters: L rows, V vocabulary, D width, B blocks of `BLOCK` columns.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def count_kernel(
    logits, log_normalizer, counts, kept_sums, threshold, row_stride, vocab_size, blocks, BLOCK: tl.constexpr
):
    """How many ids are above the threshold, and the sum of their probabilities: [L, B] each. Grid: (L, B)."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(logits + row * row_stride + column, mask=column < vocab_size, other=float("-inf")).to(tl.float32)
    probability = tl.exp(score - tl.load(log_normalizer + row))
    kept = probability > threshold
    tl.store(counts + row * blocks + block, tl.sum(kept.to(tl.int32), axis=0))
    tl.store(kept_sums + row * blocks + block, tl.sum(tl.where(kept, probability, 0.0), axis=0))


@triton.jit
def collect_kernel(
    logits,
    log_normalizer,
    counts,
    kept_sums,
    ids,
    probabilities,
    totals,
    tails,
    threshold,
    row_stride,
    vocab_size,
    blocks,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    CAPACITY: tl.constexpr,
):
    """The first CAPACITY of those ids and their probabilities: [L, CAPACITY]. Grid: (L, B).

    Also, [L] each: `totals`, how many there are, and `tails`, the probability of all other ids.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    index = tl.arange(0, BLOCKS)
    is_block = index < blocks
    block_counts = tl.load(counts + row * blocks + index, mask=is_block, other=0)
    if block == 0:
        tl.store(totals + row, tl.sum(block_counts, axis=0))
        kept_sum = tl.sum(tl.load(kept_sums + row * blocks + index, mask=is_block, other=0.0), axis=0)
        tl.store(tails + row, tl.where(kept_sum > 1.0, 0.0, 1.0 - kept_sum))
    if tl.load(counts + row * blocks + block) == 0:
        return
    column = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(logits + row * row_stride + column, mask=column < vocab_size, other=float("-inf")).to(tl.float32)
    probability = tl.exp(score - tl.load(log_normalizer + row))
    kept = probability > threshold
    slot = tl.sum(tl.where(index < block, block_counts, 0), axis=0) + tl.cumsum(kept.to(tl.int32), axis=0) - 1
    fits = kept & (slot < CAPACITY)
    tl.store(ids + row * CAPACITY + slot, column, mask=fits)
    tl.store(probabilities + row * CAPACITY + slot, probability, mask=fits)


@triton.jit
def mean_kernel(
    ids,
    probabilities,
    totals,
    tails,
    codes,
    scales,
    mean,
    soft,
    width,
    CAPACITY: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Rows of the int8 embedding, weighted and summed: `soft` [L, D]. Grid: (L, D / COLUMNS rounded up).

    Probabilities are rounded to the type of `soft` first, as in a dense product; COLUMNS is a multiple of 64.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    entry = tl.arange(0, ENTRIES)
    inside = column < width
    acc = tl.load(mean + column, mask=inside, other=0.0) * tl.load(tails + row)
    count = tl.minimum(tl.load(totals + row), CAPACITY)
    for start in range(0, count, ENTRIES):
        is_entry = start + entry < count
        offset = row * CAPACITY + start + entry
        id = tl.load(ids + offset, mask=is_entry, other=0).to(tl.int64)
        weight = tl.load(probabilities + offset, mask=is_entry, other=0.0).to(soft.dtype.element_ty).to(tl.float32)
        both = is_entry[:, None] & inside[None, :]
        code = tl.load(codes + id[:, None] * width + column[None, :], mask=both, other=0).to(tl.float32)
        scale = tl.load(scales + id[:, None] * (width // 64) + column[None, :] // 64, mask=both, other=0.0)
        embedding = (code * scale.to(tl.float32)).to(soft.dtype.element_ty).to(tl.float32)
        acc += tl.sum(embedding * weight[:, None], axis=0)
    tl.store(soft + row * width + column, acc.to(soft.dtype.element_ty), mask=inside)
