"""Launch arguments of kernels other than tensors and shapes: nf4's table, names of dtypes, constants, a device.

Knows the form in which device code takes them; knows nothing about what a kernel computes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from quant.codecs.nf4 import LEVELS
from quant.cuda import tiles
from quant.cuda.tiles import Activations


@cache
def levels(device: torch.device, activations: Activations) -> Tensor:
    """nf4's table in the compute type: int8 or fp32.

    Kept for good, as `byte_table` is: captured graphs read it by its address.
    """
    if activations == "a8":
        return torch.tensor([round(127 * level) for level in LEVELS], dtype=torch.int8, device=device)
    return torch.tensor(LEVELS, dtype=torch.float32, device=device)


@cache
def byte_table(device: torch.device) -> Tensor:
    """The two levels of each byte of nf4 as stored, as a word of two bf16, the first one low: int32 [256]."""
    rounded = torch.tensor(LEVELS, dtype=torch.bfloat16)
    byte = torch.arange(256)
    return torch.stack((rounded[byte >> 4], rounded[byte & 15]), dim=-1).view(torch.int32).flatten().to(device)


def on_device_of(tensor: Tensor) -> AbstractContextManager[None]:
    """A context for launches that take a tensor: Triton launches on the current device, whatever its arguments are."""
    return torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]


def triton_type(dtype: torch.dtype) -> Any:
    """Triton's name for a type of activations."""
    import triton.language as tl

    return getattr(tl, str(dtype).removeprefix("torch."))


def is_interpreted(kernel: object) -> bool:
    """Whether a kernel runs in Triton's interpreter, which has no inline assembly.

    Tested by the class that `triton.jit` makes otherwise, since the interpreter's is in a module that needs NumPy.
    """
    from triton import JITFunction

    return not isinstance(kernel, JITFunction)


def pack(kernel: object, device: torch.device) -> int:
    """Adjacent bytes that a lane holds of a matrix operand: `PACK` of `weight_kernels`; 0 in the interpreter."""
    if is_interpreted(kernel):
        return 0
    return 4 if tiles.mma_kind(device) == "mma.sync" else 2


def power_of_two(number: int) -> int:
    """The smallest power of 2 that is at least `number` (1 or more): the size of a tile that holds that many."""
    return 1 << (number - 1).bit_length()
