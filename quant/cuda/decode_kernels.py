"""Device code: nf4 decoded, as it is stored or in the order of `layout`; int8 in that order.

Shape letters: N rows of a weight, G groups of 64 of its input.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=("count", "groups"), do_not_specialize_on_alignment=("scale_row_stride", "scale_group_stride")
)
def decode_kernel(
    codes,
    scales,
    levels,
    out,
    count,
    groups,
    code_row_stride,
    code_group_stride,
    scale_row_stride,
    scale_group_stride,
    TILED: tl.constexpr,
    NF4: tl.constexpr,
    BY_LANES: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Codes and scales bf16 [N, G] to weights [N, 64 G]. Grid: count / GROUPS rounded up.

    Codes are u8 [N, G, 32] if NF4; otherwise int8 [N, G, 64] or, BY_LANES, [N, 2 G, 32]. As stored, a byte of nf4 has
    two adjacent codes, the first one in its high half. If TILED, it has two codes that are 32 apart, the first one in
    its low half, and the scales of rows that are 8 apart are adjacent. If BY_LANES, the bytes of each 16 rows are in
    the order of lanes (`layout`), those of nf4 as they are stored. Products are in fp32 and rounded once, to the type
    of `out`.

    Args:
        count: N times G; groups: G.
    """
    index = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    inside = index < count
    row = index // groups
    group = index % groups
    k = tl.arange(0, 64)[None, :]
    byte = k % 32 if TILED else k // 2
    is_second = k >= 32
    row_offset = row * code_row_stride
    if BY_LANES:
        row_offset = row // 16 * (16 * code_row_stride) + row % 8 * 64 + row % 16 // 8 * 2
        byte = k // 2 % 4 * 16 + k % 32 // 8 * 4 + (is_second if NF4 else k % 2)
    if not NF4:
        half = code_group_stride if BY_LANES else 32
        code_group_stride = 2 * half if BY_LANES else code_group_stride
        byte = byte + tl.where(is_second, half, 0)
    found = tl.load(codes + (row_offset + group * code_group_stride)[:, None] + byte, mask=inside[:, None], other=0)
    scale_row = row // 16 * 16 + row % 8 * 2 + row % 16 // 8 if TILED else row
    row_scales = scales + scale_row * scale_row_stride + group * scale_group_stride
    scale = tl.load(row_scales, mask=inside, other=0.0).to(tl.float32)
    if NF4:
        is_high = is_second if TILED and not BY_LANES else k % 2 == 0
        level = tl.load(levels + tl.where(is_high, found >> 4, found & 15).to(tl.int32))
    else:
        level = found.to(tl.float32)
    weight = level * scale[:, None]
    tl.store(out + index[:, None] * 64 + k, weight.to(out.dtype.element_ty), mask=inside[:, None])
