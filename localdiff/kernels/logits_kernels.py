"""Device code: the statistics of rows of logits, in one pass over them and a second one over a single block per row.

    logits [L, V] ─► partials, one program per row and block ─► summary, one program per row ─► [L] each
                                                                └─ reads again the block that the sample is in

Every block's sums are relative to its own largest score, so that nothing overflows and no program waits for another.
The order of all sums is fixed: the same logits give the same bits.
Shape letters: L rows, V vocabulary, B blocks of `BLOCK` columns.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scores_of(raw, softcap, temperature, CAPPED: tl.constexpr):
    """Scores in fp32: capped, then divided. The cap's tanh has an absolute error below 1e-7."""
    score = raw.to(tl.float32)
    if CAPPED:
        decay = tl.exp(-2.0 * tl.abs(score / softcap))
        height = softcap * (1.0 - decay) / (1.0 + decay)
        score = tl.where(score < 0.0, -height, height)
    return score / temperature


@triton.jit
def partials_kernel(
    logits,
    temperature,
    peak,
    place,
    mass,
    weighted,
    stored_mass,
    softcap,
    row_stride,
    vocab_size,
    blocks,
    CAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Partials of each block of a row: [L, B] of largest score, its id, Σ e, Σ e·s and Σ e of the rounded scores.

    `s` is the score minus the block's largest and `e` its exponential. Grid: (L, B).
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab_size
    raw = tl.load(logits + row * row_stride + column, mask=inside, other=0.0)
    score = tl.where(inside, scores_of(raw, softcap, tl.load(temperature), CAPPED), float("-inf"))
    top = tl.max(score, axis=0)
    shifted = score - top
    exponential = tl.exp(shifted)
    rounded = score.to(logits.dtype.element_ty).to(tl.float32) - top
    out = row * blocks + block
    tl.store(peak + out, top)
    tl.store(place + out, block * BLOCK + tl.argmax(score, axis=0))
    tl.store(mass + out, tl.sum(exponential, axis=0))
    tl.store(weighted + out, tl.sum(exponential * tl.where(exponential > 0.0, shifted, 0.0), axis=0))
    tl.store(stored_mass + out, tl.sum(tl.exp(rounded), axis=0))


@triton.jit
def summary_kernel(
    logits,
    temperature,
    uniforms,
    peak,
    place,
    mass,
    weighted,
    stored_mass,
    entropy,
    argmax,
    argmax_prob,
    sampled,
    log_normalizer,
    softcap,
    row_stride,
    vocab_size,
    blocks,
    CAPPED: tl.constexpr,
    SAMPLED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """A row's statistics from its blocks, and its sample through the cumulative distribution. Grid: (L,).

    `BLOCKS` is `blocks` rounded up to a power of 2. NaN logits give a NaN entropy, but ids that are still
    within the vocabulary.
    """
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCKS)
    known = index < blocks
    at = row * blocks + index
    peaks = tl.load(peak + at, mask=known, other=float("-inf"))
    top = tl.max(peaks, axis=0)
    scale = tl.exp(peaks - top)
    own = tl.load(mass + at, mask=known, other=0.0)
    masses = own * scale
    total = tl.sum(masses, axis=0)
    drop = tl.where(scale > 0.0, peaks - top, 0.0)
    deviation = tl.sum((tl.load(weighted + at, mask=known, other=0.0) + drop * own) * scale, axis=0)
    stored = tl.sum(tl.load(stored_mass + at, mask=known, other=0.0) * scale, axis=0)
    nats = tl.log(total) - deviation / total
    tl.store(entropy + row, tl.abs(tl.where(nats < 0.0, 0.0, nats)))  # a comparison keeps NaN, a maximum would not
    tl.store(argmax_prob + row, 1.0 / total)
    tl.store(log_normalizer + row, top + tl.log(stored))
    first = tl.minimum(tl.argmax(peaks, axis=0), blocks - 1)
    best = tl.minimum(tl.load(place + row * blocks + first), vocab_size - 1)
    tl.store(argmax + row, best.to(tl.int64))
    if SAMPLED:
        running = tl.cumsum(masses, axis=0)
        target = tl.load(uniforms + row) * tl.max(running, axis=0)
        last_block = tl.max(tl.where(masses > 0.0, index, 0), axis=0)
        beyond = (running > target) & (masses > 0.0)
        chosen = tl.minimum(tl.min(tl.where(beyond, index, BLOCKS), axis=0), last_block)
        before = tl.max(tl.where(index < chosen, running, 0.0), axis=0)
        column = tl.arange(0, BLOCK)
        inside = chosen * BLOCK + column < vocab_size
        raw = tl.load(logits + row * row_stride + chosen * BLOCK + column, mask=inside, other=0.0)
        score = scores_of(raw, softcap, tl.load(temperature), CAPPED)
        share = tl.where(inside, tl.exp(score - top), 0.0)
        # A block's own sum may round below the target; its last column of nonzero weight is meant then.
        last_column = tl.max(tl.where(share > 0.0, column, 0), axis=0)
        within = (tl.cumsum(share, axis=0) > target - before) & (share > 0.0)
        found = tl.minimum(tl.min(tl.where(within, column, BLOCK), axis=0), last_column)
        tl.store(sampled + row, (chosen * BLOCK + found).to(tl.int64))
    else:
        tl.store(sampled + row, best.to(tl.int64))


@triton.jit
def process_kernel(logits, temperature, softcap, row_stride, vocab_size, CAPPED: tl.constexpr, BLOCK: tl.constexpr):
    """Overwrites logits with scores, rounded to their dtype. Grid: (L, B)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab_size
    at = logits + row * row_stride + column
    score = scores_of(tl.load(at, mask=inside, other=0.0), softcap, tl.load(temperature), CAPPED)
    tl.store(at, score.to(logits.dtype.element_ty), mask=inside)
