"""bf16 in numpy, which lacks it: 16 bits, the upper half of a float32."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def from_bf16(bits: Array) -> Array:
    """uint16 to float32."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values: Array) -> Array:
    """float32 or float64 to uint16, rounded to nearest even, once."""
    bits = to_odd(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)


def to_odd(values: Array) -> Array:
    """float64 to float32, so that a second rounding gives what a single one would.

    Inexact ones are rounded toward zero and their last bit is set (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums: proved algorithms using rounding to odd", 2008).
    """
    single = np.asarray(values).astype(np.float32)
    if values.dtype == np.float32:
        return single
    bits = single.view(np.uint32)
    too_far = np.abs(single.astype(np.float64)) > np.abs(values)
    inexact = (single.astype(np.float64) != values) & np.isfinite(values)
    bits = np.where(too_far & inexact, bits - np.uint32(1), bits)
    return np.where(inexact, bits | np.uint32(1), bits).view(np.float32)
