"""Device code: rows of activations times one quantized weight, which is decoded tile by tile inside the loop.

Shape letters: M rows of activations, N rows of the weight, K its input, S parts of a sum.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quant.cuda.activation_kernels import gelu
from quant.cuda.nf4_kernels import load_table
from quant.cuda.weight_kernels import add_product, code_offsets, load_scales


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

    Grid: (M / ROWS rounded up, N / COLUMNS, S). With a single part that is the product. Programs of the same columns
    run next to each other, so that a weight is read from memory once. If GATED, the weight has 2 N rows, and `out` is
    `gelu(gate) * up` of the products with the first and with the second half of them, both rounded first, as two
    separate layers would; there is one part then.

    Args:
        codes, scales: in the order of `layout`, scales two in a word; or int8 as it is stored, with scales in bf16.
        share: groups of 64 inputs of a program.
        second_half: from the first to the second half of a group of codes that are not nf4.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    groups = width // 64
    WORDS: tl.constexpr = codes.dtype.element_ty == tl.int32
    first_row = tl.program_id(1).to(tl.int64) * COLUMNS
    weight_codes = codes + code_offsets(first_row, code_row_stride, COLUMNS, BY_LANES, WORDS)
    # Words of two scales; or, as stored, the first scale of each two rows that are 8 apart; or, in the tile that has no
    # registers to spare, all scales.
    IN_WORDS: tl.constexpr = scales.dtype.element_ty == tl.int32
    SCALES_PER_WORD: tl.constexpr = 2 if IN_WORDS else 1
    scale_of = tl.arange(0, COLUMNS // 2)
    if not IN_WORDS:
        scale_of = scale_of // 8 * 16 + scale_of % 8 if ROWS < 128 else tl.arange(0, COLUMNS)
    scale_of += tl.program_id(1) * (COLUMNS // SCALES_PER_WORD)
    pair_stride = 8 * scale_row_stride
    weight_scales = scales + scale_of.to(tl.int64) * scale_row_stride
    x_rows = x + row[:, None].to(tl.int64) * width + tl.arange(0, 32)[None, :]
    x_row_scales = x_scales + tl.where(valid, row, 0) * groups
    acc = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
    up = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
    up_codes = weight_codes + out_width.to(tl.int64) * code_row_stride
    up_scales = weight_scales + (out_width // SCALES_PER_WORD).to(tl.int64) * scale_row_stride
    table = load_table(levels, NF4, INT8, PACK)
    first = tl.program_id(2) * share
    last = tl.minimum(first + share, groups)
    # Triton copies ahead what a product takes, if it is at least a word. Other scales are loaded a group ahead; so is
    # everything of a weight whose codes are words, which go straight to registers.
    AHEAD: tl.constexpr = INT8 or not IN_WORDS
    if AHEAD:
        next_scale = load_scales(weight_scales + first * scale_group_stride, pair_stride, COLUMNS)
        if GATED:
            next_up_scale = load_scales(up_scales + first * scale_group_stride, pair_stride, COLUMNS)
    if INT8:
        next_x_scale = tl.load(x_row_scales + first)
    if WORDS:
        next_codes = tl.load(weight_codes + first * code_group_stride)
        next_scale = tl.load(weight_scales + first * scale_group_stride)
        if GATED:
            next_up_codes = tl.load(up_codes + first * code_group_stride)
            next_up_scale = tl.load(up_scales + first * scale_group_stride)
    for group in range(first, last):
        x_scale = 0
        of_group, of_up = weight_codes + group * code_group_stride, up_codes + group * code_group_stride
        ahead = tl.minimum(group + 1, groups - 1)
        if AHEAD:
            scale = next_scale
            next_scale = load_scales(weight_scales + ahead * scale_group_stride, pair_stride, COLUMNS)
            if GATED:
                up_scale = next_up_scale
                next_up_scale = load_scales(up_scales + ahead * scale_group_stride, pair_stride, COLUMNS)
        elif WORDS:
            of_group, scale = next_codes, next_scale
            next_codes = tl.load(weight_codes + ahead * code_group_stride)
            next_scale = tl.load(weight_scales + ahead * scale_group_stride)
            if GATED:
                of_up, up_scale = next_up_codes, next_up_scale
                next_up_codes = tl.load(up_codes + ahead * code_group_stride)
                next_up_scale = tl.load(up_scales + ahead * scale_group_stride)
        else:
            scale = load_scales(weight_scales + group * scale_group_stride, pair_stride, COLUMNS)
            if GATED:
                up_scale = load_scales(up_scales + group * scale_group_stride, pair_stride, COLUMNS)
        if INT8:
            x_scale = next_x_scale
            next_x_scale = tl.load(x_row_scales + ahead)
        x_group = x_rows + group * 64
        acc = add_product(acc, x_group, x_scale, of_group, second_half, scale, table, valid[:, None], NF4, INT8, PACK)
        if GATED:
            up = add_product(up, x_group, x_scale, of_up, second_half, up_scale, table, valid[:, None], NF4, INT8, PACK)
    value = tl.trans(acc).to(out.dtype.element_ty)
    if GATED:
        activated = gelu(value.to(tl.float32)).to(out.dtype.element_ty)
        value = (activated.to(tl.float32) * tl.trans(up).to(out.dtype.element_ty).to(tl.float32)).to(
            out.dtype.element_ty
        )
    target = out + (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * out_width + column[None, :]
    tl.store(target, value, mask=valid[:, None])
