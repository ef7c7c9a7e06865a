"""Instructions of this CPU, as torch reports them."""

from __future__ import annotations

from functools import cache

import torch


@cache
def has_amx() -> bool:
    """Whether it multiplies tiles (AMX): matrices of bf16, and two of signed int8."""
    return _reports("_is_amx_tile_supported")


@cache
def has_bf16_matmul() -> bool:
    """Whether torch multiplies bf16 with instructions for it, which only oneDNN does; without them fp32 is faster."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return has_amx() or _reports("_is_avx512_bf16_supported") or _reports("_is_arm_bf16_supported")


def _reports(name: str) -> bool:
    is_there = getattr(torch.cpu, name, None)
    return is_there is not None and bool(is_there())
