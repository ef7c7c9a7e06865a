"""Device code: nf4 decoded, as it is stored or in the order of `layout`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("count", "groups"), do_not_specialize_on_alignment=("scale_row", "scale_group"))
def decode_kernel(
    codes,
    scales,
    levels,
    out,
    count,
    groups,
    code_row,
    code_group,
    scale_row,
    scale_group,
    TILED: tl.constexpr,
    BY_LANES: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Codes u8 [N, G, 32] and scales bf16 [N, G] to weights [N, 64 G]. Grid: count / GROUPS rounded up.

    As stored, neighbours share a byte, the first of them has its high half; TILED, a byte has two codes that are 32
    apart, the first in its low half, and the scales of rows that are 8 apart are neighbours; BY_LANES, the bytes of 16
    rows are in the order of lanes (`layout`). A product in fp32 is rounded once, to the type of `out`.

    Args:
        count: N times G; groups: G.
        code_row, code_group, scale_row, scale_group: strides.
    """
    index = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    inside = index < count
    row = index // groups
    group = index % groups
    place = tl.arange(0, 64)[None, :]
    byte = place % 32 if TILED else place // 2
    is_high = place >= 32 if TILED else place % 2 == 0
    if BY_LANES:
        of_row = row // 16 * (16 * code_row) + row % 8 * 64 + row % 16 // 8 * 2
        byte = byte // 2 % 4 * 16 + byte // 8 * 4 + byte % 2
    else:
        of_row = row * code_row
    pairs = tl.load(codes + (of_row + group * code_group)[:, None] + byte, mask=inside[:, None], other=0)
    code = tl.where(is_high, pairs >> 4, pairs & 15).to(tl.int32)
    of_scale = row // 16 * 16 + row % 8 * 2 + row % 16 // 8 if TILED else row
    scale = tl.load(scales + of_scale * scale_row + group * scale_group, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(levels + code) * scale[:, None]
    tl.store(out + index[:, None] * 64 + place, weight.to(out.dtype.element_ty), mask=inside[:, None])
