"""The formulas of a layer: RMSNorm and RoPE; `quant.modules.linear` has GELU.

Knows rows of activations; holds no weights.
Shape letters: N rows, H heads, d head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from localdiff.model.config import LayerConfig


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """RMSNorm over the last dimension, computed in fp32; multiplies by `weight`, not by `1 + weight`."""
    scale = None if weight is None else weight.float()
    return F.rms_norm(x.float(), (x.shape[-1],), scale, eps).to(x.dtype)


def rotary_table(positions: Tensor, layer: LayerConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `rotate`.

    Where only a fraction of the head is rotated, RoPE is proportional: the head size stays the denominator of every
    exponent, and the rotated fraction is padded with zero frequencies, so that element i still pairs with i + d/2
    (Gemma 4; `_compute_proportional_rope_parameters` in transformers is the reference).

    Args:
        positions: [..., N] absolute positions.

    Returns:
        cos, sin: [..., N, d] in `dtype`; angles are computed in fp32.
    """
    rope, head_dim = layer.rope, layer.head_dim
    rotated = int(rope.rotary_fraction * head_dim // 2)
    exponents = torch.arange(0, 2 * rotated, 2, dtype=torch.float32, device=positions.device) / head_dim
    frequencies = F.pad(1.0 / (rope.theta**exponents), (0, head_dim // 2 - rotated))
    angles = positions[..., None].float() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Applies RoPE to `x` [..., N, H, d], pairing element i with i + d/2."""
    cos, sin = (part.unsqueeze(-2) for part in table)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
