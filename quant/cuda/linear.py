"""Linear layers on a GPU: one kernel launch that decodes the weight tile by tile inside the GEMM.

The plain path writes every weight out in bf16 and reads it back: five bytes moved for each stored one, which is much
compared to a GEMM over a step's rows. Compared to a GEMM over a prompt's many rows it is little, and torch's own GEMM
is faster, so prompts go through torch (`docs/decisions/0022-dense-weights-from-their-codes.md` estimates both). Weights
are converted to the order of `layout` once, except for the embedding's, whose rows are looked up.
Shape letters: M rows, N rows of a weight, K its input, S parts of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quant.codecs.codec import GROUP
from quant.cuda import tiles
from quant.cuda.decode import decode_tiled
from quant.cuda.launch_arguments import levels, on_device_of, pack
from quant.cuda.layout import HALF, tiled
from quant.cuda.rows import rows_for
from quant.cuda.switches import Part
from quant.cuda.tiles import Activations, Tile
from quant.cuda.timed import Product, tile_of_product
from quant.dtypes import short_name
from quant.modules.linear import QuantLinear
from quant.modules.tensor import QuantTensor

COLUMNS = 64
GATED_REGISTERS: dict[Activations, int] = {"a16": 128, "a8": 168}
"""Most registers per thread. Left to itself, the assembler settles for fewer on some GPUs, and spills, to no avail:
there are too few programs for more of them to run at a time."""
MAX_ROWS = 512
"""With activations in their own type, more rows than this are multiplied through torch, by the fully decoded weight; a
step with a commit has this many."""


def can_multiply(tensor: QuantTensor) -> bool:
    """Whether the rows of a weight `[N, K]` divide into programs."""
    return tensor.shape[0] % COLUMNS == 0


@dataclass(kw_only=True, slots=True)
class Weight:
    """A weight [N, K] for GEMMs.

    Attributes:
        codes, scales: in the order of `layout`, of one expert, scales [K/64, N]; or int8 as it is stored, [N, K] and
            [N, K/64].
        activations: type of the GEMM's inputs.
        is_tiled: whether codes and scales are in the order of `layout`.
        by_lanes: whether the bytes are in the order of lanes (`layout`).
    """

    codes: Tensor
    scales: Tensor
    activations: Activations
    is_tiled: bool = True
    by_lanes: bool = False

    @classmethod
    def as_stored(cls, tensor: QuantTensor, activations: Activations) -> Weight:
        """An int8 weight that shares the codes of `tensor`."""
        return cls(codes=tensor.codes, scales=tensor.scales, activations=activations, is_tiled=False)

    @classmethod
    def of(cls, tensor: QuantTensor, activations: Activations) -> Weight:
        """A weight that is converted in place; `tensor` is left empty."""
        part = tiled(tensor.codec, tensor.take()[None], activations)
        return cls(codes=part.codes[0], scales=part.scales[0], activations=activations, by_lanes=part.by_lanes)

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
        return self.codes.dtype != torch.int8

    @property
    def rows(self) -> int:
        """N."""
        return self.scales.shape[self.axis]

    @property
    def path(self) -> str:
        """How it is multiplied, in words."""
        return f"{self._format}, Triton"

    @property
    def _format(self) -> str:
        return f"{'w4' if self.is_nf4 else 'w8'}{self.activations}"

    @property
    def axis(self) -> int:
        """The axis of the weight's rows."""
        return 1 if self.is_tiled else 0

    def times(self, x: Tensor) -> Tensor:
        """Rows [M, K] to [M, N], in their type."""
        if self._is_decoded_for(x):
            return F.linear(x, decode_tiled(self.codes, self.scales, x.dtype, by_lanes=self.by_lanes))
        return self._product(x, self.rows, gated=False)

    def parts(self, x: Tensor) -> Tensor | None:
        """Parts [S, M, N] of the product in fp32, each over a share of K; `times` rounds their sum.

        A weight of few rows makes too few programs for a large GPU; parts make more. None where that does not help.
        """
        if self._is_decoded_for(x) or not len(x):
            return None
        tile = self._tile(x, self.rows, gated=False, summed=True)
        programs = -(-len(x) // tile.rows) * (self.rows // tile.columns)
        groups = self.scales.shape[1 - self.axis]
        share = -(-groups // (tile.parts or tiles.parts_of(programs, groups, x.device)))
        count = -(-groups // share)  # only parts with at least a group; another would begin after the last scale
        return None if count == 1 else self._product(x, self.rows, gated=False, parts=count)

    def gated(self, x: Tensor) -> Tensor | None:
        """`gelu(gate) * up` [M, N/2] of rows [M, K], where the first half of the weight's rows is the gate's.

        None if there are so many rows that `times` decodes the weight first; the gate is then a separate launch.
        """
        return None if self._is_decoded_for(x) else self._product(x, self.rows // 2, gated=True)

    def _is_decoded_for(self, x: Tensor) -> bool:
        return len(x) > MAX_ROWS and self.activations == "a16" and self.is_tiled

    def _tile(self, x: Tensor, columns: int, *, gated: bool, summed: bool = False) -> Tile:
        mma_kind = tiles.mma_kind(x.device)
        candidates = tiles.GATED[mma_kind][self.activations] if gated else tiles.LINEAR[mma_kind]
        # The largest tile would take more shared memory in fp32 than an RTX GPU has, and nearly all registers in int8.
        takes_largest = x.element_size() == 2 and self.activations == "a16"
        sms = tiles.sm_count(x.device) if takes_largest else None
        product = Product(
            kind="gated" if gated else "linear" if self.is_tiled else "head",
            weights=self._format,
            dtype=short_name(x.dtype),
            rows=len(x),
            columns=columns,
            inputs=x.shape[1],
        )
        return tile_of_product(product, x.device, tiles.tile_of(len(x), columns, candidates, sms), summed=summed)

    def _product(self, x: Tensor, columns: int, *, gated: bool, parts: int = 1) -> Tensor:
        """The product [M, N], or more than one part of it [S, M, N]."""
        from quant.cuda.linear_kernels import linear_kernel as kernel

        rows, width = x.shape
        out = x.new_empty(rows, columns) if parts == 1 else x.new_empty(parts, rows, columns, dtype=torch.float32)
        if not rows:
            return out
        tile = self._tile(x, columns, gated=gated)
        further = {}
        if tile.overlaps and x.dtype == torch.bfloat16 and self.by_lanes and not self.is_nf4:
            from quant.cuda.overlapped_kernels import linear_kernel as kernel

            further["STAGES"] = tile.stages
        scales = self.scales.view(torch.int32) if self.is_tiled else self.scales
        with on_device_of(x):
            source = rows_for(x, self.activations)
            kernel[(-(-rows // tile.rows), columns // tile.columns, parts)](
                source.codes,
                source.scales,
                self.codes,
                scales,
                levels(x.device, self.activations),
                out,
                rows,
                width,
                columns,
                -(-width // GROUP // parts),
                *self._strides(scales),
                NF4=self.is_nf4,
                INT8=self.activations == "a8",
                GATED=gated,
                PACK=pack(kernel, x.device),
                BY_LANES=self.by_lanes,
                ROWS=tile.rows,
                COLUMNS=tile.columns,
                num_warps=tile.warps,
                num_stages=tile.stages,
                enable_fp_fusion=True,
                maxnreg=GATED_REGISTERS[self.activations] if gated else None,
                **further,
            )
        return out

    def _strides(self, scales: Tensor) -> tuple[int, int, int, int, int]:
        """Strides of rows, groups and halves of groups of codes, then of rows and groups of scales or words of two."""
        if not self.is_tiled:
            return self.codes.stride(0), GROUP, HALF, scales.stride(0), 1
        half, of_codes = HALF, self.codes.stride(0)
        if self.by_lanes and not self.is_nf4:
            half, of_codes = of_codes, 2 * of_codes
        return self.codes.stride(1), of_codes, half, scales.stride(1), scales.stride(0)


class CudaLinear(nn.Module):
    """`x @ weight.T` without a bias."""

    part: ClassVar[Part] = "dense"
    can_leave_parts = True

    def __init__(self, linear: QuantLinear, activations: Activations) -> None:
        super().__init__()
        self.product = Weight.of(linear.weight, activations)
        self.path = self.product.path

    def weights(self) -> tuple[Tensor, ...]:
        """The stored tensors, which are neither parameters nor buffers."""
        return self.product.codes, self.product.scales

    def forward(self, x: Tensor, *, in_parts: bool = False) -> Tensor:
        """`[…, K]` to `[…, N]`, in the type of `x`.

        Args:
            in_parts: whether the output of rows [M, K] may be left in parts of its sum [S, M, N], in fp32.
        """
        parts = self.product.parts(x) if in_parts else None
        if parts is not None:
            return parts
        out = self.product.times(x.reshape(-1, x.shape[-1]))
        return out.view(*x.shape[:-1], out.shape[-1])
