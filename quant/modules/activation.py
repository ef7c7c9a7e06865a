"""The activation function of gated MLPs and experts; its device code is `quant.cuda.activation_kernels`."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def gelu(x: Tensor) -> Tensor:
    """The tanh form of GELU; the erf form is a different model."""
    return F.gelu(x, approximate="tanh")
