"""Device code: rows of activations as int8, one scale per row and group of 64."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def to_int8(values):
    """Whole numbers -127…127 and their scales [M], of fp32 values [M, 64]; values of 0 have the scale 0."""
    scale = tl.max(tl.abs(values), axis=1) / 127.0
    inverse = tl.where(scale > 0.0, 1.0 / scale, 0.0)
    scaled = values * inverse[:, None]
    # Rounded to the nearest, halves away from zero: the interpreter has no other rounding either.
    whole = (scaled + tl.where(scaled < 0.0, -0.5, 0.5)).to(tl.int32)
    return tl.minimum(tl.maximum(whole, -127), 127).to(tl.int8), scale


@triton.jit(do_not_specialize=("groups",))
def quantize_kernel(x, codes, scales, width, groups, GROUPS: tl.constexpr):
    """Rows [M, K] to codes int8 [M, K] and scales fp32 [M, K/64]. Grid: (M, groups / GROUPS rounded up)."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    inside = group < groups
    at = row * width + group[:, None] * 64 + tl.arange(0, 64)[None, :]
    values = tl.load(x + at, mask=inside[:, None], other=0.0).to(tl.float32)
    whole, scale = to_int8(values)
    tl.store(codes + at, whole, mask=inside[:, None])
    tl.store(scales + row * groups + group, scale, mask=inside)
