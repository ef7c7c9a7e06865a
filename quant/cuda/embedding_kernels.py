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
    codes,
    scales,
    id,
    vocab_size,
    COMPUTE: tl.constexpr,
    EVEN: tl.constexpr,
    PACK: tl.constexpr,
    DECODE_ONCE: tl.constexpr,
):
    """A group of 64 columns of the embeddings of ids, 0 for ids beyond the vocabulary."""
    if EVEN:
        code, scale = tl.load(codes), tl.load(scales)
    else:
        code = tl.load(codes, mask=id[:, None] < vocab_size, other=0)
        scale = tl.load(scales, mask=id < vocab_size, other=0.0)
    return int8_weights(code, scale[:, None], COMPUTE, PACK, DECODE_ONCE)


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
    DECODE_ONCE: tl.constexpr,
):
    """Partial sums of the mean embedding over each share of the ids: `partial` [S, N, D] fp32.

    Grid: (D / 64 GROUPS, N / ROWS rounded up, S). Probabilities and embeddings are rounded to COMPUTE before they are
    multiplied, as in the plain product. Programs of the same ids run next to each other, so that logits and codes are
    read from memory once. A probability is computed once for the one or two GROUPS of 64 columns of a program.

    Args:
        logits: capped and divided by the temperature.
        share: ids of a program, a multiple of IDS.
        EVEN: whether the vocabulary is a multiple of IDS as well: then the inner loop needs no masks.
    """
    group = tl.program_id(0) * GROUPS
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = group * 64 + tl.arange(0, 64)
    first = tl.program_id(2) * share
    known_row = tl.minimum(row, rows - 1)  # so that loads need no mask; repeated rows are not stored
    normalizer = tl.load(log_normalizer + known_row)[:, None]
    row_logits = logits + known_row[:, None].to(tl.int64) * row_stride
    acc = tl.zeros([ROWS, 64], dtype=tl.float32)
    acc_second = tl.zeros([ROWS, 64], dtype=tl.float32)
    for start in range(first, tl.minimum(first + share, vocab_size), IDS):
        id = start + tl.arange(0, IDS)
        id_codes = codes + id[:, None].to(tl.int64) * width + column[None, :]
        id_scales = scales + id * (width // 64) + group
        address, in_vocab = row_logits + id[None, :], id[None, :] < vocab_size
        score = tl.load(address) if EVEN else tl.load(address, mask=in_vocab, other=float("-inf"))
        # `tl.exp` is this plus four instructions for results below 1e-38; here those become 0.
        probability = tl.exp2((score.to(tl.float32) - normalizer) * _LOG2E).to(COMPUTE)
        embedding = _embeddings(id_codes, id_scales, id, vocab_size, COMPUTE, EVEN, PACK, DECODE_ONCE)
        acc = tl.dot(probability, embedding, acc, input_precision="ieee")
        if GROUPS == 2:
            embedding = _embeddings(id_codes + 64, id_scales + 1, id, vocab_size, COMPUTE, EVEN, PACK, DECODE_ONCE)
            acc_second = tl.dot(probability, embedding, acc_second, input_precision="ieee")
    valid = row[:, None] < rows
    target = partial + (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * width + column[None, :]
    tl.store(target, acc, mask=valid)
    if GROUPS == 2:
        tl.store(target + 64, acc_second, mask=valid)
