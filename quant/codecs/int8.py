"""The int8 codec: symmetric, groups of 64, one bf16 scale per group.

Knows the number format; knows nothing about files or modules. `docs/format.md` specifies what is stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded, encode_in_chunks, finite_absmax

MAX_CODE = 127
TINY = 2.0**-120


class Int8:
    """Integers in -127…127 times a scale: 8.25 bits per weight."""

    name = "int8"
    codes_dtype = torch.int8
    codes_per_byte = 1
    error_limit = 0.02

    def encode(self, weight: Tensor) -> Encoded:
        """See `Codec.encode`. Deterministic on a device."""
        return encode_in_chunks(self, weight, _encode_groups)

    def decode(self, encoded: Encoded, dtype: torch.dtype = torch.float32) -> Tensor:
        """See `Codec.decode`."""
        if dtype == torch.bfloat16:
            # Codes and scales are exact in bf16, and torch, too, multiplies bf16 in fp32 and rounds once.
            groups = encoded.codes.view(*encoded.scales.shape, GROUP)
            return (groups * encoded.scales.unsqueeze(-1)).view(encoded.codes.shape)
        weights = encoded.codes.float().view(*encoded.scales.shape, GROUP)
        weights.mul_(encoded.scales.float().unsqueeze(-1))
        return weights.view(encoded.codes.shape).to(dtype)


def _encode_groups(weights: Tensor) -> tuple[Tensor, Tensor]:
    scales = (finite_absmax(weights) / MAX_CODE).to(torch.bfloat16)
    stored = scales.float()
    inverse = torch.where(stored > TINY, 1 / stored, 0.0).unsqueeze(-1)
    return weights.mul(inverse).round_().clamp_(-MAX_CODE, MAX_CODE).to(torch.int8), scales
