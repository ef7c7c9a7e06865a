"""Device code: the mean embedding under a distribution, over all ids, from int8 codes.

Shape letters: N rows, V vocabulary, D width, S shares of the vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .weight_kernels import int8_weights

_LOG2E = tl.constexpr(1.4426950408889634)


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
    IDS: tl.constexpr,
    PACK: tl.constexpr,
):
    """What each share of the ids adds to the mean: `partial` [S, N, D] fp32. Grid: (D / 64, N / ROWS rounded up, S).

    Probabilities and embeddings are rounded to COMPUTE before they are multiplied, as in the plain product. Programs of
    the same ids are next to each other, so that logits and codes come from memory once.

    Args:
        logits: capped and divided by the temperature, `row_stride` from row to row.
        share: ids of a program, a multiple of IDS.
    """
    group = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    column = group * 64 + tl.arange(0, 64)
    first = tl.program_id(2) * share
    normalizer = tl.load(log_normalizer + row, mask=valid, other=0.0)
    of_rows = logits + row[:, None].to(tl.int64) * row_stride
    total = tl.zeros([ROWS, 64], dtype=tl.float32)
    for start in range(first, tl.minimum(first + share, vocab_size), IDS):
        id = start + tl.arange(0, IDS)
        known = id < vocab_size
        both = valid[:, None] & known[None, :]
        score = tl.load(of_rows + id[None, :], mask=both, other=float("-inf")).to(tl.float32)
        # `tl.exp` is this and four instructions for results below 1e-38, which are 0 here.
        probability = tl.exp2((score - normalizer[:, None]) * _LOG2E).to(COMPUTE)
        code = tl.load(codes + id[:, None].to(tl.int64) * width + column[None, :], mask=known[:, None], other=0)
        scale = tl.load(scales + id * (width // 64) + group, mask=known, other=0.0)
        embedding = int8_weights(code, scale[:, None], COMPUTE, PACK)
        total = tl.dot(probability, embedding, total, input_precision="ieee")
    to = partial + (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * width + column[None, :]
    tl.store(to, total, mask=valid[:, None])
