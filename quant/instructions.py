"""Instructions of this CPU, as torch reports them, and what follows for matrix products."""

from __future__ import annotations

from functools import cache

import torch


@cache
def has_amx() -> bool:
    """Whether the CPU multiplies tiles (AMX): bf16 by bf16, and signed int8 by signed int8."""
    return _reports("_is_amx_tile_supported")


@cache
def has_bf16_matmul() -> bool:
    """Whether torch has bf16 instructions to multiply with, which only oneDNN uses; without them fp32 is faster."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return has_amx() or _reports("_is_avx512_bf16_supported") or _has_arm_bf16()


def matmul_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The type to multiply activations of `dtype` in: fp32 for 16-bit types on a CPU without bf16 instructions.

    There torch takes several times as long in bf16 as in fp32, and a hundred times as long where the right factor of
    the product is row-major.
    """
    is_slow = dtype.itemsize < 4 and device.type == "cpu" and not has_bf16_matmul()
    return torch.float32 if is_slow else dtype


def _has_arm_bf16() -> bool:
    """Torch lists instructions under this name for ARM only; an older torch may have no list at all."""
    listed = getattr(torch.cpu, "get_capabilities", None)
    return listed is not None and bool(listed().get("bf16"))


def _reports(name: str) -> bool:
    is_there = getattr(torch.cpu, name, None)
    return is_there is not None and bool(is_there())
