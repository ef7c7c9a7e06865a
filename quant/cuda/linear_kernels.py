"""Device code: rows of activations times one quantized weight, which is decoded tile by tile inside the loop.

Shape letters: M rows of activations, N rows of the weight, K its input, S parts of a sum.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quant.cuda.activation_kernels import gate_and_up, gelu
from quant.cuda.nf4_kernels import load_table
from quant.cuda.weight_kernels import add_product, code_offsets, load_scales, load_words, with_jump


# Compiled once for all prompt lengths and any number of scales per row; specializing on them would not be faster.
@triton.jit(
    do_not_specialize=("rows", "share"), do_not_specialize_on_alignment=("scale_row_stride", "scale_group_stride")
)
def linear_kernel(
    x,
    x_scales,
    codes,
    scales,
    levels,
    out,
    rows,
    width,
    out_width,
    share,
    code_row_stride,
    code_group_stride,
    second_half,
    scale_row_stride,
    scale_group_stride,
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    GATED: tl.constexpr,
    PACK: tl.constexpr,
    BY_LANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Parts `out` [S, M, N] of x [M, K] times the weight, each the sum over a share of K, in fp32.

    Grid: (M / ROWS rounded up, N / COLUMNS, S). A single part is the product. Programs of the same columns
    run next to each other, so that a weight is read from memory once. If GATED, the weight has 2 N rows, and `out` is
    `gelu(gate) * up` of the products with the first and with the second half of them, both rounded first, as two
    separate layers would; there is one part then.

    Args:
        codes, scales: in the order of `layout`, scales two in a word; or int8 as it is stored, with scales in bf16.
        share: groups of 64 inputs of a program.
        second_half: offset from the first to the second half of a group of codes that are not nf4.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    groups = width // 64
    N: tl.constexpr = 2 * COLUMNS if GATED else COLUMNS
    WORDS: tl.constexpr = codes.dtype.element_ty == tl.int32
    IN_WORDS: tl.constexpr = scales.dtype.element_ty == tl.int32
    # Inputs of a group per product: all 64 where a product is waited for, if a lane can have all of its weights.
    AT_ONCE: tl.constexpr = 64 if BY_LANES or (PACK == 2 and not IN_WORDS and not INT8) else 32
    first_row = tl.program_id(1).to(tl.int64) * COLUMNS
    jump = out_width - COLUMNS if GATED else 0
    weight_codes = codes + code_offsets(first_row, code_row_stride, jump, N, BY_LANES, WORDS, AT_ONCE)
    # Words of two scales; or, as stored, the first scale of each two rows that are 8 apart; or, in the tile that has no
    # registers to spare, all scales.
    tl.static_assert(IN_WORDS or not GATED)
    if IN_WORDS:
        scale_of = tl.program_id(1) * (COLUMNS // 2) + with_jump(tl.arange(0, N // 2), jump // 2, N // 2)
    else:
        pair = tl.arange(0, N // 2)
        scale_of = tl.program_id(1) * COLUMNS + (pair // 8 * 16 + pair % 8 if ROWS < 128 else tl.arange(0, N))
    pair_stride = 8 * scale_row_stride
    weight_scales = scales + scale_of.to(tl.int64) * scale_row_stride
    x_rows = x + row[:, None].to(tl.int64) * width + tl.arange(0, AT_ONCE)[None, :]
    x_row_scales = x_scales + tl.where(valid, row, 0) * groups
    acc = tl.zeros([N, ROWS], dtype=tl.float32)
    table = load_table(levels, NF4, INT8, PACK)
    first = tl.program_id(2) * share
    last = tl.minimum(first + share, groups)
    # Triton copies ahead what a product takes, if it is at least a word. Other scales are loaded a group ahead here; so
    # are codes and scales of a weight whose codes are words, which go straight to registers.
    AHEAD: tl.constexpr = INT8 or not IN_WORDS
    if AHEAD:
        next_scale = load_scales(weight_scales + first * scale_group_stride, pair_stride, N)
    if INT8:
        next_x_scale = tl.load(x_row_scales + first)
    if WORDS:
        next_codes, next_scale = load_words(weight_codes, weight_scales, first, code_group_stride, scale_group_stride)
    for group in range(first, last):
        x_scale = 0
        of_group = weight_codes + group * code_group_stride
        ahead = tl.minimum(group + 1, groups - 1)
        if AHEAD:
            scale = next_scale
            next_scale = load_scales(weight_scales + ahead * scale_group_stride, pair_stride, N)
        elif WORDS:
            of_group, scale = next_codes, next_scale
            next_codes, next_scale = load_words(
                weight_codes, weight_scales, ahead, code_group_stride, scale_group_stride
            )
        else:
            scale = load_scales(weight_scales + group * scale_group_stride, pair_stride, N)
        if INT8:
            x_scale = next_x_scale
            next_x_scale = tl.load(x_row_scales + ahead)
        x_group = x_rows + group * 64
        acc = add_product(acc, x_group, x_scale, of_group, second_half, scale, table, valid[:, None], NF4, INT8, PACK)
    if GATED:
        gate, up = gate_and_up(acc)
        activated = gelu(gate.to(out.dtype.element_ty).to(tl.float32)).to(out.dtype.element_ty)
        value = activated.to(tl.float32) * up.to(out.dtype.element_ty).to(tl.float32)
    else:
        value = tl.trans(acc)
    target = out + (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * out_width + column[None, :]
    tl.store(target, value.to(out.dtype.element_ty), mask=valid[:, None])
