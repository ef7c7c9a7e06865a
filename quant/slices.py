"""Large tensors a slice at a time: fused experts by expert, the embedding by rows.

Knows how a tensor is cut along its first axis and that slices encode independently; knows nothing about files. A fused
expert tensor is 1 GB in bf16, so nothing here ever holds one whole in the source's type or in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import torch
from torch import Tensor

from .codec import Codec, Encoded, codes_shape, scales_shape

SLICE_BYTES = 16_000_000
"""Source bytes worked on at a time; an expert's `gate_up_proj` is 7.9 MB."""


def slices(shape: Sequence[int], itemsize: int, limit: int = SLICE_BYTES) -> Iterator[slice]:
    """Cuts of the first axis with at most `limit` source bytes each, and at least one entry.

    They depend on the shape alone, so that a tensor encodes the same way in every run.
    """
    length = shape[0] if shape else 1
    step = max(1, limit // max(1, prod(shape[1:]) * itemsize))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def encode_slices(codec: Codec, shape: Sequence[int], read: Callable[[slice], Tensor]) -> Encoded:
    """Encode `[first, …, in]` from slices of its first axis, into whole codes and scales.

    Args:
        codec: format of the result.
        shape: shape of the whole tensor.
        read: gives one slice, in bf16, fp16 or fp32; called in order, each slice once.

    Raises:
        ValueError: as `Codec.encode`.
    """
    codes = torch.empty(codes_shape(codec, shape), dtype=codec.codes_dtype)
    scales = torch.empty(scales_shape(shape), dtype=torch.bfloat16)
    for part in slices(shape, 2):
        encoded = codec.encode(read(part))
        codes[part].copy_(encoded.codes)
        scales[part].copy_(encoded.scales)
    return Encoded(codes=codes, scales=scales)
