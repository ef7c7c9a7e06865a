"""Linear layers without a bias, over a plain and over a quantized weight; and the GELU between them.

Shape letters: in, out features of the product.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from quant.codecs.codec import Codec
from quant.instructions import matmul_dtype
from quant.modules.tensor import QuantTensor


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight.T`, `[…, in]` to `[…, out]`, in the type of `x`; multiplied in fp32 where that is faster."""
    dtype = matmul_dtype(x.device, x.dtype)
    if dtype == x.dtype:
        return F.linear(x, weight)
    return F.linear(x.to(dtype), weight.to(dtype)).to(x.dtype)


def gelu(x: Tensor) -> Tensor:
    """The tanh form of GELU; the erf form is a different model. Its device code is `quant.cuda.activation_kernels`."""
    return F.gelu(x, approximate="tanh")


class Linear(nn.Linear):
    """`x @ weight.T` without a bias, multiplied as `product` does."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`, in the type of `x`."""
        return product(x, self.weight)


class QuantLinear(nn.Module):
    """`x @ weight.T` without a bias; the weight `[out, in]` is decoded for each product."""

    def __init__(self, codec: Codec, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = QuantTensor(codec, (out_features, in_features))

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`, in the type of `x`."""
        return product(x, self.weight.decode(matmul_dtype(x.device, x.dtype)))
