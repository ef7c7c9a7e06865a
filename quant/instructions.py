"""Instructions of this CPU, as torch reports them, and what follows for products."""

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
    return has_amx() or _reports("_is_avx512_bf16_supported") or _has_arm_bf16()


def matmul_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The type to multiply in, for activations of a type: for bf16 it is fp32 on a CPU without instructions for that.

    There torch takes several times as long in bf16 as in fp32, and a hundred times where the right factor of a product
    lies row by row.
    """
    is_slow = dtype.itemsize < 4 and device.type == "cpu" and not has_bf16_matmul()
    return torch.float32 if is_slow else dtype


def _has_arm_bf16() -> bool:
    """Of ARM alone torch lists the instructions under this name; an older torch may have no list."""
    listed = getattr(torch.cpu, "get_capabilities", None)
    return listed is not None and bool(listed().get("bf16"))


def _reports(name: str) -> bool:
    is_there = getattr(torch.cpu, name, None)
    return is_there is not None and bool(is_there())
