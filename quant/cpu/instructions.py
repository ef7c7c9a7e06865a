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
    """Whether it has instructions for bf16 matmuls; without them fp32 is faster."""
    return has_amx() or _reports("_is_avx512_bf16_supported") or _reports("_is_arm_bf16_supported")


def _reports(name: str) -> bool:
    is_there = getattr(torch.cpu, name, None)
    return is_there is not None and bool(is_there())
