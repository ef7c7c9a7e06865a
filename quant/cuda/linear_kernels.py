"""Device code: rows of activations times one quantized weight, decoded tile by tile on the way.

Shape letters: M rows of activations, N rows of the weight, K its input.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .expert_kernels import gelu
from .weight_kernels import add_product, places_of, table_of


# Compiled once for prompts of all lengths and for any number of scales per row; specializing would not be faster.
@triton.jit(do_not_specialize=("rows",), do_not_specialize_on_alignment=("scale_row", "scale_group"))
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
    code_row,
    code_group,
    scale_row,
    scale_group,
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    GATED: tl.constexpr,
    PACK: tl.constexpr,
    BY_LANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """`out` [M, N] = x [M, K] times the weight, summed in fp32. Grid: (M / ROWS rounded up, N / COLUMNS).

    Programs of the same columns are next to each other, so that a weight comes from memory once. Where it is GATED, the
    weight has 2 N rows, and `out` is `gelu(gate) * up` of the first and the second half of them, both rounded first, as
    two layers would.

    Args:
        code_row, code_group, scale_row, scale_group: strides of codes and scales, so that int8 is read as it is stored;
            scales of nf4 are two in a word (`layout`).
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, 32)
    groups = width // 64
    weight_codes = codes + places_of(tl.program_id(1).to(tl.int64) * COLUMNS, code_row, COLUMNS, BY_LANES)
    # Two in a word; or every first of two, rows 8 apart; or all, in the tile that has no registers to spare.
    IN_WORD: tl.constexpr = 2 if NF4 else 1
    scale = tl.arange(0, COLUMNS // 2)
    if not NF4:
        scale = scale // 8 * 16 + scale % 8 if ROWS < 128 else tl.arange(0, COLUMNS)
    scale += tl.program_id(1) * (COLUMNS // IN_WORD)
    weight_scales = scales + scale.to(tl.int64) * scale_row
    x_rows = x + row[:, None].to(tl.int64) * width + k[None, :]
    x_row_scales = x_scales + tl.where(valid, row, 0) * groups
    total = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
    up = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
    up_codes = weight_codes + out_width.to(tl.int64) * code_row
    up_scales = weight_scales + (out_width // IN_WORD).to(tl.int64) * scale_row
    table = table_of(levels, NF4, INT8, PACK)
    for group in range(groups):
        total = add_product(
            total,
            x_rows + group * 64,
            x_row_scales + group,
            weight_codes + group * code_group,
            weight_scales + group * scale_group,
            8 * scale_row,
            table,
            k,
            valid[:, None],
            NF4,
            INT8,
            PACK,
        )
        if GATED:
            up = add_product(
                up,
                x_rows + group * 64,
                x_row_scales + group,
                up_codes + group * code_group,
                up_scales + group * scale_group,
                8 * scale_row,
                table,
                k,
                valid[:, None],
                NF4,
                INT8,
                PACK,
            )
    value = tl.trans(total).to(out.dtype.element_ty)
    if GATED:
        opened = gelu(value.to(tl.float32)).to(out.dtype.element_ty)
        value = (opened.to(tl.float32) * tl.trans(up).to(out.dtype.element_ty).to(tl.float32)).to(out.dtype.element_ty)
    to = out + row[:, None].to(tl.int64) * out_width + column[None, :]
    tl.store(to, value, mask=valid[:, None])
