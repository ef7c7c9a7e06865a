"""Device code: the mean embedding under a distribution, over its probable ids alone.

    count     how many ids of a block are above the threshold, and what they hold together
    collect   those ids and their probabilities, in ascending order of ids
    mean      their embeddings, weighted and summed in that order, and the mean embedding for what was left out

Where nothing is above the threshold, a block is read once; only blocks with something in them are read again.
Shape letters: L rows, V vocabulary, D width, B blocks of `BLOCK` columns.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def count_kernel(
    logits, log_normalizer, counts, masses, threshold, row_stride, vocab_size, blocks, BLOCK: tl.constexpr
):
    """Ids above the threshold, and their probability: [L, B] each. Grid: (L, B)."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(logits + row * row_stride + column, mask=column < vocab_size, other=float("-inf")).to(tl.float32)
    probability = tl.exp(score - tl.load(log_normalizer + row))
    kept = probability > threshold
    tl.store(counts + row * blocks + block, tl.sum(kept.to(tl.int32), axis=0))
    tl.store(masses + row * blocks + block, tl.sum(tl.where(kept, probability, 0.0), axis=0))


@triton.jit
def collect_kernel(
    logits,
    log_normalizer,
    counts,
    masses,
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
    """The first CAPACITY of those ids: [L, CAPACITY]; how many there are, and what is left out: [L]. Grid: (L, B)."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    index = tl.arange(0, BLOCKS)
    known = index < blocks
    of_blocks = tl.load(counts + row * blocks + index, mask=known, other=0)
    if block == 0:
        tl.store(totals + row, tl.sum(of_blocks, axis=0))
        mass = tl.sum(tl.load(masses + row * blocks + index, mask=known, other=0.0), axis=0)
        tl.store(tails + row, tl.where(mass > 1.0, 0.0, 1.0 - mass))
    if tl.load(counts + row * blocks + block) == 0:
        return
    column = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(logits + row * row_stride + column, mask=column < vocab_size, other=float("-inf")).to(tl.float32)
    probability = tl.exp(score - tl.load(log_normalizer + row))
    kept = probability > threshold
    place = tl.sum(tl.where(index < block, of_blocks, 0), axis=0) + tl.cumsum(kept.to(tl.int32), axis=0) - 1
    fits = kept & (place < CAPACITY)
    tl.store(ids + row * CAPACITY + place, column, mask=fits)
    tl.store(probabilities + row * CAPACITY + place, probability, mask=fits)


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
    """Rows of the int8 embedding, weighted and summed: `soft` [L, D]. Grid: (L, D / COLUMNS).

    Probabilities are rounded to the type of `soft` first, as in a dense product; COLUMNS is a multiple of 64.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    entry = tl.arange(0, ENTRIES)
    inside = column < width
    total = tl.load(mean + column, mask=inside, other=0.0) * tl.load(tails + row)
    count = tl.minimum(tl.load(totals + row), CAPACITY)
    for start in range(0, count, ENTRIES):
        held = start + entry < count
        at = row * CAPACITY + start + entry
        id = tl.load(ids + at, mask=held, other=0).to(tl.int64)
        weight = tl.load(probabilities + at, mask=held, other=0.0).to(soft.dtype.element_ty).to(tl.float32)
        both = held[:, None] & inside[None, :]
        code = tl.load(codes + id[:, None] * width + column[None, :], mask=both, other=0).to(tl.float32)
        scale = tl.load(scales + id[:, None] * (width // 64) + column[None, :] // 64, mask=both, other=0.0)
        embedding = (code * scale.to(tl.float32)).to(soft.dtype.element_ty).to(tl.float32)
        total += tl.sum(embedding * weight[:, None], axis=0)
    tl.store(soft + row * width + column, total.to(soft.dtype.element_ty), mask=inside)
