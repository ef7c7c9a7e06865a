"""Device code: the activation function of gated MLPs and experts; `quant.modules.activation` is its plain form."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gelu(x):
    """The tanh form of GELU, of fp32 values."""
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    exp_neg = tl.exp(-2.0 * tl.abs(inner))
    tanh = (1.0 - exp_neg) / (1.0 + exp_neg)
    return 0.5 * x * (1.0 + tl.where(inner < 0.0, -tanh, tanh))
