"""Pseudorandom numbers that are the same on every machine and with every version of torch.

Knows 32-bit integers; a generator of torch would tie stored values to its version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def integers(count: int, seed: int) -> Tensor:
    """[count] int64 on the CPU: integers from 0 to 2**32 - 1, a hash of their index and the seed."""
    value = (torch.arange(count, dtype=torch.int64) + seed * 1_000_003) & _MASK
    for factor, shift in ((0x2C1B3C6D, 15), (0x297A2D39, 12), (0x1B873593, 16)):
        value = ((value ^ (value >> shift)) * factor) & _MASK  # factors under 2**31, so that no product overflows
    return value ^ (value >> 15)


def uniform(shape: Sequence[int], seed: int) -> Tensor:
    """fp32 `shape` on the CPU, multiples of 2**-15 from -1 to 1."""
    return ((integers(math.prod(shape), seed) >> 16).to(torch.float32) / 32768 - 1).view(*shape)
