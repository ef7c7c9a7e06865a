"""Device code: the soft embedding under a distribution, over all ids, from int8 codes.

Shape letters: N rows, V vocabulary, D width, S shares of the vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quant.cuda.nf4_kernels import unpacked
from quant.cuda.weight_kernels import int8_weights


@triton.jit
def _load(pointers, in_vocab, other, EVEN: tl.constexpr):
    """The values at pointers; `other` for ids beyond the vocabulary."""
    return tl.load(pointers) if EVEN else tl.load(pointers, mask=in_vocab, other=other)


@triton.jit(do_not_specialize=("rows",))
def soft_kernel(
    probs,
    codes,
    scales,
    partial,
    rows,
    vocab_size,
    width,
    row_stride,
    share,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    IDS: tl.constexpr,
    EVEN: tl.constexpr,
    PACK: tl.constexpr,
    DECODE_ONCE: tl.constexpr,
):
    """Partial sums of the soft embedding over each share of the ids: `partial` [S, N, D] fp32.

    Grid: (D / 64 GROUPS, N / ROWS rounded up, S). Embeddings are rounded to the type of the probabilities before they
    are multiplied, as in the plain product. Programs of the same ids run next to each other, so that probabilities and
    codes are read from memory once. The one or two GROUPS of 64 columns of a program are both decoded before they are
    multiplied: products that share an operand through shared memory wait for each other.

    Args:
        probs: [N, V].
        scales: bf16; or, for two GROUPS, words of two, which can be copied ahead of the iteration that needs them.
        share: ids of a program, a multiple of IDS.
        EVEN: whether the vocabulary is a multiple of IDS as well: then the inner loop needs no masks.
    """
    COMPUTE: tl.constexpr = probs.dtype.element_ty
    group = tl.program_id(0) * GROUPS
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = group * 64 + tl.arange(0, 64)
    first = tl.program_id(2) * share
    known_row = tl.minimum(row, rows - 1)  # so that loads need no mask; repeated rows are not stored
    row_probs = probs + known_row[:, None].to(tl.int64) * row_stride
    acc = tl.zeros([ROWS, 64], dtype=tl.float32)
    acc_second = tl.zeros([ROWS, 64], dtype=tl.float32)
    for start in range(first, tl.minimum(first + share, vocab_size), IDS):
        id = start + tl.arange(0, IDS)
        in_vocab = id < vocab_size
        id_codes = codes + id[:, None].to(tl.int64) * width + column[None, :]
        id_scales = scales + (id * (width // 64) + group) // GROUPS
        probability = _load(row_probs + id[None, :], in_vocab[None, :], 0.0, EVEN)
        code = _load(id_codes, in_vocab[:, None], 0, EVEN)
        scale = _load(id_scales, in_vocab, 0, EVEN)
        if GROUPS == 2:
            first_scale, scale = unpacked(scale)
            second_code = _load(id_codes + 64, in_vocab[:, None], 0, EVEN)
            embedding = int8_weights(code, first_scale[:, None], COMPUTE, PACK, DECODE_ONCE)
            second_embedding = int8_weights(second_code, scale[:, None], COMPUTE, PACK, DECODE_ONCE)
            acc = tl.dot(probability, embedding, acc, input_precision="ieee")
            acc_second = tl.dot(probability, second_embedding, acc_second, input_precision="ieee")
        else:
            embedding = int8_weights(code, scale[:, None], COMPUTE, PACK, DECODE_ONCE)
            acc = tl.dot(probability, embedding, acc, input_precision="ieee")
    valid = row[:, None] < rows
    target = partial + (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * width + column[None, :]
    tl.store(target, acc, mask=valid)
    if GROUPS == 2:
        tl.store(target + 64, acc_second, mask=valid)
