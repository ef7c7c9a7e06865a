"""The product of a step's rows and an unquantized weight of few rows, as a router's, in parts of K.

For 256 rows and 128 outputs there are eight tiles, so torch's GEMM splits K, too, and adds the parts in a launch of its
own. Here they are left to whatever reads the product.
Shape letters: M rows of activations, N rows of the weight, K its input, S parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quant.codecs.codec import GROUP
from quant.cuda.launch_arguments import pack
from quant.cuda.linear import COLUMNS, MAX_ROWS

GROUPS_PER_PART = 4
"""Groups of 64 inputs. The released router has 44 of them, hence 11 parts, and 88 programs for 256 rows."""
ROWS = 64


def can_split(x: Tensor, weight: Tensor) -> bool:
    """Whether `split_product` takes rows [M, K] and a weight [N, K], and there is more than one part.

    A prompt has more rows than it takes, and tiles enough for torch.
    """
    outputs, inputs = weight.shape
    share = GROUP * GROUPS_PER_PART
    divides = outputs % COLUMNS == 0 and inputs % share == 0 and inputs > share
    return 0 < len(x) <= MAX_ROWS and divides and weight.is_contiguous() and weight.dtype == x.dtype


def split_product(x: Tensor, weight: Tensor) -> Tensor:
    """Parts [S, M, N] in fp32 of `x @ weight.T`, each over the same number of inputs."""
    from quant.cuda.linear_kernels import linear_kernel

    x, weight = x.contiguous(), weight.detach()
    rows, width = x.shape
    columns, parts = len(weight), width // GROUP // GROUPS_PER_PART
    out = x.new_empty(parts, rows, columns, dtype=torch.float32)
    no_scales, no_strides = weight, (0, 0)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # Triton launches on the current device
        linear_kernel[(-(-rows // ROWS), columns // COLUMNS, parts)](
            x,
            x,
            weight,
            no_scales,
            no_scales,
            out,
            rows,
            width,
            columns,
            GROUPS_PER_PART,
            weight.stride(0),
            GROUP,
            GROUP // 2,
            *no_strides,
            NF4=False,
            INT8=False,
            GATED=False,
            PACK=pack(linear_kernel, x.device),
            BY_LANES=False,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            num_warps=4,
            num_stages=3,
        )
    return out
