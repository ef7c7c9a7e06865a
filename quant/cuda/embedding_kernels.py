"""Device code: the mean embedding under a distribution, over all ids, from int8 codes.

Shape letters: N rows, V vocabulary, D width, S shares of the vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .weight_kernels import int8_weights

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _embeddings(
    codes, scales, id, vocab_size, COMPUTE: tl.constexpr, EVEN: tl.constexpr, PACK: tl.constexpr, ONCE: tl.constexpr
):
    """A group of 64 columns of the embeddings of ids; those of ids that there are not are 0."""
    if EVEN:
        code, scale = tl.load(codes), tl.load(scales)
    else:
        code = tl.load(codes, mask=id[:, None] < vocab_size, other=0)
        scale = tl.load(scales, mask=id < vocab_size, other=0.0)
    return int8_weights(code, scale[:, None], COMPUTE, PACK, ONCE)


@triton.jit(do_not_specialize=("rows",))
def soft_kernel(
    logits,
    log_normalizer,
    codes,
    scales,
    partial,
    rows,
    vocab_size,
    width,
    row_stride,
    share,
    COMPUTE: tl.constexpr,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    IDS: tl.constexpr,
    EVEN: tl.constexpr,
    PACK: tl.constexpr,
    ONCE: tl.constexpr,
):
    """What each share of the ids adds to the mean: `partial` [S, N, D] fp32. Grid: (D / 64 GROUPS, N / ROWS up, S).

    Probabilities and embeddings are rounded to COMPUTE before they are multiplied, as in the plain product. Programs of
    the same ids are next to each other, so that logits and codes come from memory once. A probability is computed once
    for the one or two GROUPS of 64 columns of a program.

    Args:
        logits: capped and divided by the temperature, `row_stride` from row to row.
        share: ids of a program, a multiple of IDS.
        EVEN: whether the vocabulary is one, too, so that nothing needs a mask, which is instructions in the inner loop.
    """
    group = tl.program_id(0) * GROUPS
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = group * 64 + tl.arange(0, 64)
    first = tl.program_id(2) * share
    known_row = tl.minimum(row, rows - 1)  # so that loads need no mask; what is computed twice is stored once
    normalizer = tl.load(log_normalizer + known_row)[:, None]
    of_rows = logits + known_row[:, None].to(tl.int64) * row_stride
    total = tl.zeros([ROWS, 64], dtype=tl.float32)
    second = tl.zeros([ROWS, 64], dtype=tl.float32)
    for start in range(first, tl.minimum(first + share, vocab_size), IDS):
        id = start + tl.arange(0, IDS)
        of_ids = codes + id[:, None].to(tl.int64) * width + column[None, :]
        of_groups = scales + id * (width // 64) + group
        at, known = of_rows + id[None, :], id[None, :] < vocab_size
        score = tl.load(at) if EVEN else tl.load(at, mask=known, other=float("-inf"))
        # `tl.exp` is this and four instructions for results below 1e-38, which are 0 here.
        probability = tl.exp2((score.to(tl.float32) - normalizer) * _LOG2E).to(COMPUTE)
        embedding = _embeddings(of_ids, of_groups, id, vocab_size, COMPUTE, EVEN, PACK, ONCE)
        total = tl.dot(probability, embedding, total, input_precision="ieee")
        if GROUPS == 2:
            embedding = _embeddings(of_ids + 64, of_groups + 1, id, vocab_size, COMPUTE, EVEN, PACK, ONCE)
            second = tl.dot(probability, embedding, second, input_precision="ieee")
    valid = row[:, None] < rows
    to = partial + (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * width + column[None, :]
    tl.store(to, total, mask=valid)
    if GROUPS == 2:
        tl.store(to + 64, second, mask=valid)
