"""A linear layer over a quantized weight.

Shape letters: in, out features of the product.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from quant.codecs.codec import Codec
from quant.instructions import matmul_dtype
from quant.modules.tensor import QuantTensor


class QuantLinear(nn.Module):
    """`x @ weight.T` without a bias; the weight `[out, in]` is decoded for each product."""

    def __init__(self, codec: Codec, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = QuantTensor(codec, (out_features, in_features))

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`, in the type of `x`."""
        dtype = matmul_dtype(x.device, x.dtype)
        return F.linear(x.to(dtype), self.weight.decode(dtype)).to(x.dtype)
