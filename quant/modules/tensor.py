"""A quantized tensor as part of a module.

Knows a codec and its two buffers; knows nothing about products. It is a module, so that a layer that holds it under the
old parameter's name has exactly the names of the stored parts in its state: `up_proj.weight.codes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from quant.codecs.codec import Codec, Encoded, codes_shape, scales_shape


class QuantTensor(nn.Module):
    """Codes and scales of a weight `[…, in]`, empty until they are loaded or assigned.

    Args:
        codec: number format.
        shape: shape of the weight.

    Raises:
        ValueError: the shape does not divide into groups.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, codec: Codec, shape: Sequence[int]) -> None:
        super().__init__()
        self.codec = codec
        self.shape = tuple(shape)
        self.register_buffer("codes", torch.empty(codes_shape(codec, shape), dtype=codec.codes_dtype))
        self.register_buffer("scales", torch.empty(scales_shape(shape), dtype=torch.bfloat16))

    @classmethod
    def of(cls, codec: Codec, weight: Tensor) -> Self:
        """The quantized copy of a weight, on its device."""
        with torch.device("meta"):
            tensor = cls(codec, weight.shape)
        encoded = codec.encode(weight)
        tensor.codes, tensor.scales = encoded.codes, encoded.scales
        return tensor

    @property
    def encoded(self) -> Encoded:
        """The two buffers together."""
        return Encoded(codes=self.codes, scales=self.scales)

    def take(self) -> Encoded:
        """The two buffers, for a module that stores them in its own order; this one is left empty."""
        encoded = self.encoded
        self.codes, self.scales = self.codes.new_empty(0), self.scales.new_empty(0)
        return encoded

    def decode(self, dtype: torch.dtype, index: int | slice | Tensor | None = None) -> Tensor:
        """The weights in `dtype`; with an index on the first axis, only that part is decoded."""
        return self.codec.decode(self.encoded if index is None else self.encoded[index], dtype)

    def extra_repr(self) -> str:
        """Codec and shape, for `print(model)`."""
        return f"{self.codec.name}, {list(self.shape)}"
