"""Device code: rows of activations times one quantized weight, which is decoded tile by tile inside the loop.

Shape letters: M rows of activations, N rows of the weight, K its input.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .activation_kernels import gelu
from .weight_kernels import add_product, code_offsets, load_table


# Compiled once for all prompt lengths and any number of scales per row; specializing on them would not be faster.
@triton.jit(do_not_specialize=("rows",), do_not_specialize_on_alignment=("scale_row_stride", "scale_group_stride"))
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
    code_row_stride,
    code_group_stride,
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
    """`out` [M, N] = x [M, K] times the weight, summed in fp32. Grid: (M / ROWS rounded up, N / COLUMNS).

    Programs of the same columns run next to each other, so that a weight is read from memory once. If GATED, the weight
    has 2 N rows, and `out` is `gelu(gate) * up` of the products with the first and with the second half of them, both
    rounded first, as two separate layers would.

    Args:
        codes, scales: of any strides, so that int8 is read as it is stored; scales of nf4 are two in a word (`layout`).
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, 32)
    groups = width // 64
    weight_codes = codes + code_offsets(tl.program_id(1).to(tl.int64) * COLUMNS, code_row_stride, COLUMNS, BY_LANES)
    # nf4: words of two scales. int8: the first scale of each two rows that are 8 apart; or, in the tile that has no
    # registers to spare, all scales.
    SCALES_PER_WORD: tl.constexpr = 2 if NF4 else 1
    scale = tl.arange(0, COLUMNS // 2)
    if not NF4:
        scale = scale // 8 * 16 + scale % 8 if ROWS < 128 else tl.arange(0, COLUMNS)
    scale += tl.program_id(1) * (COLUMNS // SCALES_PER_WORD)
    weight_scales = scales + scale.to(tl.int64) * scale_row_stride
    x_rows = x + row[:, None].to(tl.int64) * width + k[None, :]
    x_row_scales = x_scales + tl.where(valid, row, 0) * groups
    acc = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
    up = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
    up_codes = weight_codes + out_width.to(tl.int64) * code_row_stride
    up_scales = weight_scales + (out_width // SCALES_PER_WORD).to(tl.int64) * scale_row_stride
    table = load_table(levels, NF4, INT8, PACK)
    for group in range(groups):
        acc = add_product(
            acc,
            x_rows + group * 64,
            x_row_scales + group,
            weight_codes + group * code_group_stride,
            weight_scales + group * scale_group_stride,
            8 * scale_row_stride,
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
                up_codes + group * code_group_stride,
                up_scales + group * scale_group_stride,
                8 * scale_row_stride,
                table,
                k,
                valid[:, None],
                NF4,
                INT8,
                PACK,
            )
    value = tl.trans(acc).to(out.dtype.element_ty)
    if GATED:
        activated = gelu(value.to(tl.float32)).to(out.dtype.element_ty)
        value = (activated.to(tl.float32) * tl.trans(up).to(out.dtype.element_ty).to(tl.float32)).to(
            out.dtype.element_ty
        )
    target = out + row[:, None].to(tl.int64) * out_width + column[None, :]
    tl.store(target, value, mask=valid[:, None])
