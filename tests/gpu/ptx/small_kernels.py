"""Kernels that only tests launch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_kernel(source, to, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copies that many numbers."""
    place = tl.arange(0, BLOCK)
    tl.store(to + place, tl.load(source + place, mask=place < count), mask=place < count)
