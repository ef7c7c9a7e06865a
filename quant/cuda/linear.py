"""Linear layers and the output head on a card: one launch, the weight decoded tile by tile on its way to the product.

The plain way writes every weight out in bf16 and reads it again, five bytes moved for one that is stored. Int8 weights
are read as they are stored; nf4 is brought into the order of `layout` once. Whether this is faster than the plain way
depends on the card, so it is taken only where it is asked for.
Shape letters: M rows, N rows of a weight, K its input, V vocabulary, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..codec import Encoded
from ..modules.embedding import QuantEmbedding
from ..modules.linear import QuantLinear
from ..modules.tensor import QuantTensor
from .experts import Activations, is_interpreted, levels
from .layout import tiled
from .rows import quantize_rows

COLUMNS = 64
STAGES = 3
TILES = ((16, 4), (64, 4), (128, 8))
"""Rows of a program and its warps: the first that takes all rows, or the last."""


def can_multiply(tensor: QuantTensor) -> bool:
    """Whether a weight `[N, K]` divides into the columns of programs."""
    return tensor.shape[0] % COLUMNS == 0


def tile_of(rows: int) -> tuple[int, int]:
    """Rows of a program, and its warps."""
    return next((tile for tile in TILES if rows <= tile[0]), TILES[-1])


class Weight:
    """A weight [N, K] that rows can be multiplied with.

    Args:
        tensor: int8 stays where it is and is shared; nf4 is given up for its tiled form.
    """

    def __init__(self, tensor: QuantTensor, activations: Activations) -> None:
        self._activations: Activations = activations
        self._is_nf4 = tensor.codec.name == "nf4"
        self.shape = tensor.shape
        groups = tensor.shape[1] // 64
        if self._is_nf4:
            encoded = tensor.encoded
            part = tiled(tensor.codec, Encoded(codes=encoded.codes[None], scales=encoded.scales[None]))
            tensor.codes, tensor.scales = tensor.codes.new_empty(0), tensor.scales.new_empty(0)
            self._codes, self._scales = part.codes, part.scales
            self._strides = (32, 32 * self.shape[0], 1, self.shape[0])
        else:
            self._codes, self._scales = tensor.codes, tensor.scales
            self._strides = (self.shape[1], 64, groups, 1)
        self.path = f"{'w4' if self._is_nf4 else 'w8'}{activations}, Triton"

    def times(self, x: Tensor) -> Tensor:
        """Rows [M, K] to [M, N], in their type."""
        from .linear_kernels import linear_kernel

        rows, width = x.shape
        out = x.new_empty(rows, self.shape[0])
        if not rows:
            return out
        source, source_scales = x.contiguous(), x
        is_int8 = self._activations == "a8"
        block, warps = tile_of(rows)
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            if is_int8:
                quantized = quantize_rows(source)
                source, source_scales = quantized.codes, quantized.scales
            linear_kernel[(-(-rows // block), self.shape[0] // COLUMNS)](
                source,
                source_scales,
                self._codes,
                self._scales,
                levels(x.device, self._activations),
                out,
                rows,
                width,
                self.shape[0],
                *self._strides,
                NF4=self._is_nf4,
                INT8=is_int8,
                PERMUTED=not is_interpreted(),
                ROWS=block,
                COLUMNS=COLUMNS,
                num_warps=warps,
                num_stages=STAGES,
            )
        return out


class CudaLinear(nn.Module):
    """`x @ weight.T` without a bias."""

    def __init__(self, linear: QuantLinear, activations: Activations) -> None:
        super().__init__()
        self._weight = Weight(linear.weight, activations)
        self.path = self._weight.path

    def forward(self, x: Tensor) -> Tensor:
        """`[…, K]` to `[…, N]`, in the type of `x`."""
        out = self._weight.times(x.reshape(-1, x.shape[-1]))
        return out.view(*x.shape[:-1], out.shape[-1])


class CudaEmbedding(QuantEmbedding):
    """The tied embedding, with an output head of one launch; lookup and soft embedding are the plain ones.

    Activations keep their type: logits decide how many steps a block takes.
    """

    def __init__(self, embedding: QuantEmbedding) -> None:
        nn.Module.__init__(self)
        self.weight, self.dtype = embedding.weight, embedding.dtype
        self._head = Weight(embedding.weight, "a16")
        self.path = f"{self._head.path}; soft embedding decoded, then multiplied"

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [M, V] (neither capped nor divided) of `hidden` [M, D], in its type."""
        return self._head.times(hidden)
