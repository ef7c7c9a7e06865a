"""Linear layers on a GPU: one kernel launch that decodes the weight tile by tile inside the GEMM.

The plain path writes every weight out in bf16 and reads it back: five bytes moved for each stored one, which is much
next to a GEMM over a step's rows. Next to a GEMM over a prompt's many rows it is little, and torch's own GEMM is
faster: those go through torch (`docs/decisions/0022-dense-weights-from-their-codes.md` estimates both). Int8 weights
are read as they are stored; nf4 is converted to the order of `layout` once.
Shape letters: M rows, N rows of a weight, K its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..codecs.codec import GROUP, Codec, Encoded
from ..modules.linear import QuantLinear
from ..modules.tensor import QuantTensor
from . import tiles
from .decode import decode_tiled
from .launch_arguments import levels, pack
from .layout import tiled
from .rows import quantize_groups
from .tiles import Activations

COLUMNS = 64
MAX_ROWS = 512
"""More rows than this are multiplied through torch, by the fully decoded weight; a step with a commit has this many."""


def can_multiply(tensor: QuantTensor) -> bool:
    """Whether the rows of a weight `[N, K]` divide into programs."""
    return tensor.shape[0] % COLUMNS == 0


@dataclass(kw_only=True, slots=True)
class Weight:
    """A weight [N, K] for GEMMs.

    Attributes:
        codes, scales: int8 as it is stored, [N, K] and [N, K/64]; nf4 in the order of `layout`, [K/64, N, 32] and
            [K/64, N].
        codec: their number format.
        activations: type of the GEMM's inputs.
        by_lanes: whether the bytes of nf4 are in the order of lanes (`layout`).
    """

    codes: Tensor
    scales: Tensor
    codec: Codec
    activations: Activations
    by_lanes: bool = False

    @classmethod
    def of(cls, tensor: QuantTensor, activations: Activations) -> Weight:
        """Int8 codes are shared with `tensor`; nf4 codes are converted, and those of `tensor` freed."""
        if tensor.codec.name != "nf4":
            return cls(codes=tensor.codes, scales=tensor.scales, codec=tensor.codec, activations=activations)
        encoded = tensor.encoded
        part = tiled(tensor.codec, Encoded(codes=encoded.codes[None], scales=encoded.scales[None]), activations)
        tensor.codes, tensor.scales = tensor.codes.new_empty(0), tensor.scales.new_empty(0)
        return cls(
            codes=part.codes[0],
            scales=part.scales[0],
            codec=tensor.codec,
            activations=activations,
            by_lanes=part.by_lanes,
        )

    @classmethod
    def stacked(cls, weights: Sequence[Weight]) -> Weight:
        """One weight from the rows of several of the same format; each of those becomes a view of its own rows."""
        axis = weights[0].axis
        codes, scales = (torch.cat([getattr(weight, name) for weight in weights], axis) for name in ("codes", "scales"))
        counts = [weight.rows for weight in weights]
        for weight, *parts in zip(
            weights, torch.split(codes, counts, axis), torch.split(scales, counts, axis), strict=True
        ):
            weight.codes, weight.scales = parts
        return replace(weights[0], codes=codes, scales=scales)

    @property
    def is_nf4(self) -> bool:
        """Whether a byte holds two codes."""
        return self.codes.dtype == torch.uint8

    @property
    def rows(self) -> int:
        """N."""
        return self.scales.shape[self.axis]

    @property
    def path(self) -> str:
        """How it is multiplied, in words."""
        return f"{'w4' if self.is_nf4 else 'w8'}{self.activations}, Triton"

    @property
    def axis(self) -> int:
        """The axis of the weight's rows."""
        return 1 if self.is_nf4 else 0

    def times(self, x: Tensor) -> Tensor:
        """Rows [M, K] to [M, N], in their type."""
        return self._through_torch(x) if self._is_decoded_for(x) else self._product(x, self.rows, gated=False)

    def gated(self, x: Tensor) -> Tensor | None:
        """`gelu(gate) * up` [M, N/2] of rows [M, K], where the first half of the weight's rows is the gate's.

        None if there are so many rows that `times` decodes the weight first; the gate is then a separate launch.
        """
        return None if self._is_decoded_for(x) else self._product(x, self.rows // 2, gated=True)

    def _is_decoded_for(self, x: Tensor) -> bool:
        return len(x) > MAX_ROWS and self.activations == "a16"

    def _through_torch(self, x: Tensor) -> Tensor:
        if self.is_nf4:
            return F.linear(x, decode_tiled(self.codes, self.scales, x.dtype, by_lanes=self.by_lanes))
        return F.linear(x, self.codec.decode(Encoded(codes=self.codes, scales=self.scales), x.dtype))

    def _product(self, x: Tensor, columns: int, *, gated: bool) -> Tensor:
        from .linear_kernels import linear_kernel

        rows, width = x.shape
        out = x.new_empty(rows, columns)
        if not rows:
            return out
        source, source_scales = x.contiguous(), x
        is_int8 = self.activations == "a8"
        mma_kind = tiles.mma_kind(x.device)
        candidates = tiles.GATED[mma_kind][self.activations] if gated else tiles.LINEAR[mma_kind]
        # The largest tile would take more shared memory in fp32 than an RTX GPU has, and nearly all registers in int8.
        takes_largest = x.element_size() == 2 and not is_int8
        sms = tiles.sm_count(x.device) if takes_largest else None
        tile = tiles.tile_of(rows, columns, candidates, sms)
        scales = self.scales.view(torch.int32) if self.is_nf4 else self.scales
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            if is_int8:
                quantized = quantize_groups(source)
                source, source_scales = quantized.codes, quantized.scales
            linear_kernel[(-(-rows // tile.rows), columns // tile.columns)](
                source,
                source_scales,
                self.codes,
                scales,
                levels(x.device, self.activations),
                out,
                rows,
                width,
                columns,
                *self._strides(scales),
                NF4=self.is_nf4,
                INT8=is_int8,
                GATED=gated,
                PACK=pack(linear_kernel, x.device),
                BY_LANES=self.by_lanes,
                ROWS=tile.rows,
                COLUMNS=tile.columns,
                num_warps=tile.warps,
                num_stages=tile.stages,
            )
        return out

    def _strides(self, scales: Tensor) -> tuple[int, int, int, int]:
        """Strides of rows and of groups, of codes and then of scales or of words of two scales."""
        if self.is_nf4:
            return self.codes.stride(1), self.codes.stride(0), scales.stride(1), scales.stride(0)
        return self.codes.stride(0), GROUP, scales.stride(0), 1


class CudaLinear(nn.Module):
    """`x @ weight.T` without a bias."""

    def __init__(self, linear: QuantLinear, activations: Activations) -> None:
        super().__init__()
        self.product = Weight.of(linear.weight, activations)
        self.path = self.product.path

    def forward(self, x: Tensor) -> Tensor:
        """`[…, K]` to `[…, N]`, in the type of `x`."""
        out = self.product.times(x.reshape(-1, x.shape[-1]))
        return out.view(*x.shape[:-1], out.shape[-1])
