"""Device code: the statistics of rows of logits: one pass over all of them, then a second look at one block per row.

    logits [L, V] ─► partials, one program per row and block ─► summary, one program per row ─► [L] each
                                                                └─ rereads the block that the sample falls in

Every block's sums are relative to its own largest score, so that nothing overflows and no program waits for another.
All sums have a fixed order: the same logits give the same bits.
Shape letters: L rows, V vocabulary, B blocks of `BLOCK` columns.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scores_of(raw, softcap, temperature, CAPPED: tl.constexpr):
    """Scores in fp32: capped, then divided by the temperature. The tanh has an absolute error below 1e-7.

    Both divisors are the same for all scores, which are multiplied by their inverses: a division would take a GPU's
    unit for exponentials, which is what limits a pass over logits.
    """
    score = raw.to(tl.float32)
    if CAPPED:
        exp_neg = tl.exp(tl.abs(score) * (-2.0 / softcap))
        capped = softcap * (1.0 - exp_neg) / (1.0 + exp_neg)
        score = tl.where(score < 0.0, -capped, capped)
    return score * (1.0 / temperature)


@triton.jit
def rounded_to(score, logits):
    """Scores as the type of the logits holds them."""
    return score.to(logits.dtype.element_ty).to(tl.float32)


@triton.jit
def partials_kernel(
    logits,
    temperature,
    block_max,
    block_argmax,
    block_sum,
    block_dot,
    block_rounded_sum,
    softcap,
    row_stride,
    vocab_size,
    blocks,
    CAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Partials of each block of a row, [L, B] each: largest score, its id, Σ e, Σ e·s, and Σ e of the rounded scores.

    `s` is the score minus the block's largest and `e` its exponential; rounded scores are relative to the largest of
    them, since at low temperatures rounding changes a score by more than an exponential can hold. Grid: (L, B).
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab_size
    raw = tl.load(logits + row * row_stride + column, mask=inside, other=0.0)
    score = tl.where(inside, scores_of(raw, softcap, tl.load(temperature), CAPPED), float("-inf"))
    own_max = tl.max(score, axis=0)
    shifted = score - own_max
    exponential = tl.exp(shifted)
    rounded = rounded_to(score, logits) - rounded_to(own_max, logits)
    out = row * blocks + block
    tl.store(block_max + out, own_max)
    tl.store(block_argmax + out, block * BLOCK + tl.argmax(score, axis=0))
    tl.store(block_sum + out, tl.sum(exponential, axis=0))
    tl.store(block_dot + out, tl.sum(exponential * tl.where(exponential > 0.0, shifted, 0.0), axis=0))
    tl.store(block_rounded_sum + out, tl.sum(tl.exp(rounded), axis=0))


@triton.jit
def summary_kernel(
    logits,
    temperature,
    uniforms,
    block_max,
    block_argmax,
    block_sum,
    block_dot,
    block_rounded_sum,
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
    """A row's statistics from its blocks, and its sample by inverting the cumulative distribution. Grid: (L,).

    `BLOCKS` is `blocks` rounded up to a power of 2. NaN logits give a NaN entropy, but ids that are still
    within the vocabulary.
    """
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCKS)
    is_block = index < blocks
    offset = row * blocks + index
    maxes = tl.load(block_max + offset, mask=is_block, other=float("-inf"))
    row_max = tl.max(maxes, axis=0)
    scale = tl.exp(maxes - row_max)
    unscaled = tl.load(block_sum + offset, mask=is_block, other=0.0)
    sums = unscaled * scale
    row_sum = tl.sum(sums, axis=0)
    shift = tl.where(scale > 0.0, maxes - row_max, 0.0)
    row_dot = tl.sum((tl.load(block_dot + offset, mask=is_block, other=0.0) + shift * unscaled) * scale, axis=0)
    rounded_maxes = rounded_to(maxes, logits)
    rounded_max = tl.max(rounded_maxes, axis=0)
    rounded_sums = tl.load(block_rounded_sum + offset, mask=is_block, other=0.0) * tl.exp(rounded_maxes - rounded_max)
    nats = tl.log(row_sum) - row_dot / row_sum
    tl.store(entropy + row, tl.abs(tl.where(nats < 0.0, 0.0, nats)))  # a comparison keeps NaN, a maximum would not
    tl.store(argmax_prob + row, 1.0 / row_sum)
    tl.store(log_normalizer + row, rounded_max + tl.log(tl.sum(rounded_sums, axis=0)))
    best_block = tl.minimum(tl.argmax(maxes, axis=0), blocks - 1)
    best = tl.minimum(tl.load(block_argmax + row * blocks + best_block), vocab_size - 1)
    tl.store(argmax + row, best.to(tl.int64))
    if SAMPLED:
        cumulative = tl.cumsum(sums, axis=0)
        target = tl.load(uniforms + row) * tl.max(cumulative, axis=0)
        last_block = tl.max(tl.where(sums > 0.0, index, 0), axis=0)
        beyond = (cumulative > target) & (sums > 0.0)
        chosen = tl.minimum(tl.min(tl.where(beyond, index, BLOCKS), axis=0), last_block)
        before = tl.max(tl.where(index < chosen, cumulative, 0.0), axis=0)
        column = tl.arange(0, BLOCK)
        inside = chosen * BLOCK + column < vocab_size
        raw = tl.load(logits + row * row_stride + chosen * BLOCK + column, mask=inside, other=0.0)
        score = scores_of(raw, softcap, tl.load(temperature), CAPPED)
        exponential = tl.where(inside, tl.exp(score - row_max), 0.0)
        # Summed again, a block may round to less than the target; then its last column of nonzero probability is taken.
        last_column = tl.max(tl.where(exponential > 0.0, column, 0), axis=0)
        within = (tl.cumsum(exponential, axis=0) > target - before) & (exponential > 0.0)
        drawn = tl.minimum(tl.min(tl.where(within, column, BLOCK), axis=0), last_column)
        tl.store(sampled + row, (chosen * BLOCK + drawn).to(tl.int64))
    else:
        tl.store(sampled + row, best.to(tl.int64))


@triton.jit
def process_kernel(
    logits,
    temperature,
    log_normalizer,
    softcap,
    row_stride,
    vocab_size,
    CAPPED: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Overwrites logits with scores, or with the PROBABILITIES of the scores, rounded to their dtype. Grid: (L, B)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab_size
    address = logits + row * row_stride + column
    score = scores_of(tl.load(address, mask=inside, other=0.0), softcap, tl.load(temperature), CAPPED)
    score = score.to(logits.dtype.element_ty)
    if PROBABILITIES:
        score = tl.exp(score.to(tl.float32) - tl.load(log_normalizer + row)).to(logits.dtype.element_ty)
    tl.store(address, score, mask=inside)
