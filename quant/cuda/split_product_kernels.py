"""Device code: rows of activations times an unquantized weight, in parts of its input.

Shape letters: M rows of activations, N rows of the weight, K its input, S parts.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("rows",))  # compiled once for all numbers of rows
def split_product_kernel(
    x, weight, out, rows, width, columns, SHARE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Parts `out` [S, M, N] of x [M, K] times the weight [N, K], each the sum over SHARE inputs, in fp32.

    Grid: (M / ROWS rounded up, N / COLUMNS, S).
    """
    DEPTH: tl.constexpr = 64
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(2)
    valid = row[:, None] < rows
    k = part * SHARE + tl.arange(0, DEPTH)[None, :]
    x_tile = x + row[:, None].to(tl.int64) * width + k
    weight_tile = weight + column[:, None].to(tl.int64) * width + k
    acc = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, SHARE, DEPTH):
        of_rows = tl.load(x_tile + start, mask=valid, other=0)
        acc = tl.dot(of_rows, tl.trans(tl.load(weight_tile + start)), acc, input_precision="ieee")
    target = out + (part * rows + row[:, None]).to(tl.int64) * columns + column[None, :]
    tl.store(target, acc, mask=valid)
