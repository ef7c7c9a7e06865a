"""Device code: nf4 as it is stored, decoded."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def decode_kernel(codes, scales, levels, out, groups, GROUPS: tl.constexpr):
    """Codes u8 [G, 32] and scales bf16 [G] to weights [G, 64]. Grid: G / GROUPS rounded up.

    Neighbours share a byte, the first of them has its high half. A product in fp32 is rounded once, to the type of
    `out`.
    """
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    inside = (group < groups)[:, None]
    place = tl.arange(0, 64)[None, :]
    pairs = tl.load(codes + group[:, None] * 32 + place // 2, mask=inside, other=0)
    code = tl.where(place % 2 == 0, pairs >> 4, pairs & 15).to(tl.int32)
    scale = tl.load(scales + group, mask=group < groups, other=0.0).to(tl.float32)
    weight = tl.load(levels + code) * scale[:, None]
    tl.store(out + group[:, None] * 64 + place, weight.to(out.dtype.element_ty), mask=inside)
