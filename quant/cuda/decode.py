"""Weights decoded in one kernel launch on a GPU, for matmuls through torch.

The plain path of nf4 is five operations, with eight bytes of levels and products per weight, which is stored in half a
byte. The weights are the same, bit for bit. `linear` decodes like this for many rows, as in a prompt. `DecodedLinear`
is the baseline for the kernel of `linear`, and serves layers whose weights do not divide into that kernel's programs.
Shape letters: N rows of a weight, K its input, G = K / 64 groups.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from quant.codecs.codec import GROUP, Encoded
from quant.codecs.nf4 import Nf4
from quant.cuda.launch_arguments import levels, on_device_of
from quant.cuda.switches import Part
from quant.modules.linear import QuantLinear
from quant.modules.tensor import QuantTensor

GROUPS = 16


class CudaNf4(Nf4):
    """The nf4 codec for weights on a GPU; it encodes as the plain one does."""

    def decode(self, encoded: Encoded, dtype: torch.dtype = torch.float32) -> Tensor:
        """See `Codec.decode`."""
        *rows, groups = encoded.scales.shape
        codes = encoded.codes.reshape(-1, groups, GROUP // 2)
        return _decoded(codes, encoded.scales.reshape(-1, groups), dtype, is_tiled=False).view(*rows, groups * GROUP)


def decode_tiled(codes: Tensor, scales: Tensor, dtype: torch.dtype, *, by_lanes: bool) -> Tensor:
    """Weights [N, K] from codes [.., N, ..] and scales [K/64, N] in the order of `layout`, or from views of them."""
    if codes.dtype == torch.int32:  # words of four bytes of nf4
        codes = codes.view(torch.uint8)
    return _decoded(codes.transpose(0, 1), scales.T, dtype, is_tiled=True, by_lanes=by_lanes)


def _decoded(codes: Tensor, scales: Tensor, dtype: torch.dtype, *, is_tiled: bool, by_lanes: bool = False) -> Tensor:
    """Weights [N, 64 G] from codes [N, G, 32], [N, G, 64] or [N, 2 G, 32], and scales [N, G].

    The first two axes of codes may have any strides.
    """
    from quant.cuda.decode_kernels import decode_kernel

    rows, groups = scales.shape
    out = torch.empty(rows, groups * GROUP, dtype=dtype, device=codes.device)
    if count := scales.numel():
        with on_device_of(codes):
            decode_kernel[(-(-count // GROUPS),)](
                codes,
                scales,
                levels(codes.device, "a16"),
                out,
                count,
                groups,
                *codes.stride()[:2],
                *scales.stride(),
                TILED=is_tiled,
                NF4=codes.dtype == torch.uint8,
                BY_LANES=by_lanes,
                GROUPS=GROUPS,
                num_warps=4,
                enable_fp_fusion=True,
            )
    return out


class DecodedLinear(QuantLinear):
    """`x @ weight.T` without a bias, through torch; a kernel decodes the codes of the plain layer."""

    part: ClassVar[Part] = "decode"
    path = "decoded in one launch, then multiplied"

    def __init__(self, linear: QuantLinear) -> None:
        nn.Module.__init__(self)
        with torch.device("meta"):
            self.weight = QuantTensor(CudaNf4(), linear.weight.shape)
        self.weight.codes, self.weight.scales = linear.weight.codes, linear.weight.scales
