"""nf4 decoded in one launch on a card, for products through torch.

The plain way is five operations, with eight bytes of levels and products for a weight that is stored in half a byte.
The weights are the same, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..codec import GROUP, Encoded
from ..modules.linear import QuantLinear
from ..nf4 import Nf4
from .experts import levels

GROUPS = 16


@dataclass(frozen=True, slots=True)
class CudaNf4(Nf4):
    """The codec of weights that lie on a card; it encodes as the plain one does."""

    def decode(self, encoded: Encoded, dtype: torch.dtype = torch.float32) -> Tensor:
        """See `Codec.decode`."""
        from .decode_kernels import decode_kernel

        codes, scales = encoded.codes.contiguous(), encoded.scales.contiguous()
        out = torch.empty(*scales.shape[:-1], scales.shape[-1] * GROUP, dtype=dtype, device=codes.device)
        groups = scales.numel()
        if groups:
            with torch.cuda.device_of(codes):  # type: ignore[no-untyped-call]
                decode_kernel[(-(-groups // GROUPS),)](
                    codes, scales, levels(codes.device, "a16"), out, groups, GROUPS=GROUPS, num_warps=4
                )
        return out


class DecodedLinear(QuantLinear):
    """`x @ weight.T` without a bias, through torch; the kernel decodes the weight, which is the plain layer's own."""

    path = "decoded in one launch, then multiplied"

    def __init__(self, linear: QuantLinear) -> None:
        nn.Module.__init__(self)
        self.weight = linear.weight
        self.weight.codec = CudaNf4()
