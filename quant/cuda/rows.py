"""Rows of activations as the GEMMs on a GPU take them: in their own type, or as int8.

With one scale per row, a few large columns would round all others away; with one per row and group of 64 they do not,
and the products of a group are summed separately anyway.
Shape letters: M rows, K width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.codecs.codec import GROUP
from quant.cuda.tiles import Activations

_GROUPS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows of a GEMM.

    Attributes:
        codes: [M, K], in int8 or in the activations' own type.
        scales: fp32 [M, K/64] of int8; otherwise any tensor, since kernels take one but do not read it.
    """

    codes: Tensor
    scales: Tensor


def rows_for(x: Tensor, activations: Activations) -> Rows:
    """The rows of `x` [M, K], which need not be contiguous, in the type of a GEMM's inputs."""
    x = x.contiguous()
    return quantize_groups(x) if activations == "a8" else Rows(codes=x, scales=x)


def quantize_groups(x: Tensor) -> Rows:
    """Rows [M, K], contiguous and with K a multiple of 64, as integers -127…127 times a scale per group."""
    from quant.cuda.row_kernels import quantize_kernel

    rows, width = x.shape
    groups = width // GROUP
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty(rows, groups, dtype=torch.float32, device=x.device)
    if rows:
        quantize_kernel[(rows, -(-groups // _GROUPS))](
            x, codes, scales, width, groups, GROUPS=_GROUPS, num_warps=2, enable_fp_fusion=True
        )
    return Rows(codes=codes, scales=scales)
