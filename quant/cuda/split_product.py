"""The product of a step's rows and an unquantized weight of few rows, such as a router's, in parts of K.

For 256 rows and 128 outputs there are eight tiles, so torch's GEMM splits K, too, and adds the parts in a launch of its
own. Here adding them is left to whatever reads the product.
Shape letters: M rows of activations, N rows of the weight, K its input, S parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quant.cuda.launch_arguments import on_device_of
from quant.cuda.linear import MAX_ROWS

SHARE = 256
"""Inputs of a part. The released router has 2,816, hence 11 parts, and 88 programs for 256 rows."""
ROWS, COLUMNS = 64, 64
"""Rows and columns of a program."""


def can_split(x: Tensor, weight: Tensor) -> bool:
    """Whether `split_product` takes rows [M, K] and a weight [N, K], and there is more than one part.

    A prompt has more rows than `split_product` takes, and enough tiles for torch.
    """
    outputs, inputs = weight.shape
    divides = outputs % COLUMNS == 0 and inputs % SHARE == 0 and inputs > SHARE
    return 0 < len(x) <= MAX_ROWS and divides and weight.is_contiguous() and weight.dtype == x.dtype


def split_product(x: Tensor, weight: Tensor) -> Tensor:
    """Parts [S, M, N] in fp32 of `x @ weight.T`, each over the same number of inputs."""
    from quant.cuda.split_product_kernels import split_product_kernel

    rows, width = x.shape
    columns, parts = len(weight), width // SHARE
    out = x.new_empty(parts, rows, columns, dtype=torch.float32)
    with on_device_of(x):
        split_product_kernel[(-(-rows // ROWS), columns // COLUMNS, parts)](
            x.contiguous(),
            weight.detach(),
            out,
            rows,
            width,
            columns,
            SHARE=SHARE,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            num_warps=4,
            num_stages=3,
            enable_fp_fusion=True,
        )
    return out
