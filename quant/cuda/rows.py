"""Activations as int8 for int8 GEMMs on a GPU.

With one scale per row, a few large columns would round all others away; with one per row and group of 64 they do not,
and the products of a group are summed separately anyway.
Shape letters: M rows, K width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.codecs.codec import GROUP

_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Int8Groups:
    """Codes int8 [M, K] and scales fp32 [M, K/64]."""

    codes: Tensor
    scales: Tensor


def quantize_groups(x: Tensor) -> Int8Groups:
    """Rows [M, K], contiguous and with K a multiple of 64, as integers -127…127 times a scale per group."""
    from quant.cuda.row_kernels import quantize_kernel

    rows, width = x.shape
    groups = width // GROUP
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty(rows, groups, dtype=torch.float32, device=x.device)
    if rows:
        quantize_kernel[(rows, -(-groups // _GROUPS))](x, codes, scales, width, groups, GROUPS=_GROUPS, num_warps=2)
    return Int8Groups(codes, scales)
