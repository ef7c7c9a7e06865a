"""Device code: rows of activations as int8, one scale per row and group of 64.

Shape letters: M rows, K their width.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def to_int8(values):
    """Codes -127…127 [M, 64] and scales [M] of fp32 values [M, 64]; if all values of a row are 0, its scale is 0.

    A row with a NaN gets an infinite scale, with which every product is infinite or NaN: damaged weights must show.
    """
    # `tl.max` ignores NaN.
    scale = tl.max(tl.where(values == values, tl.abs(values), float("inf")), axis=1) / 127.0
    inverse = tl.where(scale > 0.0, 1.0 / scale, 0.0)
    scaled = values * inverse[:, None]
    # Rounds to nearest, half away from zero, by arithmetic: Triton's interpreter has no rounding operation.
    codes = (scaled + tl.where(scaled < 0.0, -0.5, 0.5)).to(tl.int32)
    return tl.minimum(tl.maximum(codes, -127), 127).to(tl.int8), scale


@triton.jit(do_not_specialize=("groups",))
def quantize_kernel(x, codes, scales, width, groups, GROUPS: tl.constexpr):
    """Rows [M, K] to codes int8 [M, K] and scales fp32 [M, K/64]. Grid: (M, groups / GROUPS rounded up)."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    inside = group < groups
    offset = row * width + group[:, None] * 64 + tl.arange(0, 64)[None, :]
    values = tl.load(x + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    value_codes, scale = to_int8(values)
    tl.store(codes + offset, value_codes, mask=inside[:, None])
    tl.store(scales + row * groups + group, scale, mask=inside)
