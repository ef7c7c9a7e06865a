"""Device code: the activation function of gated MLPs and experts; `quant.modules.linear` has its plain form."""

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


@triton.jit
def gate_and_up(acc):
    """Products [ROWS, N/2] with the first and with the second half of a weight's rows, from `acc` [N, ROWS]."""
    halves = tl.reshape(tl.trans(acc), [acc.shape[1], 2, acc.shape[0] // 2])
    return tl.split(tl.permute(halves, [0, 2, 1]))
