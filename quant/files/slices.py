"""Cuts large tensors into slices that are processed one at a time.

Knows that a row of a weight encodes on its own, so that fused experts and the embedding can be cut anywhere between two
rows; knows nothing about files. A fused expert tensor is 1 GB in bf16, so nothing here ever holds one whole in the
source's type or in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

SLICE_BYTES = 4_000_000
"""Source bytes worked on at a time: half an expert's `gate_up_proj`."""


def row_slices(shape: Sequence[int], itemsize: int, limit: int = SLICE_BYTES) -> Iterator[slice]:
    """Cuts of a tensor's rows (all axes but the last, flattened) with at most `limit` bytes each, and at least a row.

    They depend on the shape alone, so that a tensor is worked on in the same way in every run.
    """
    rows = prod(shape[:-1])
    step = max(1, limit // max(1, (shape[-1] if shape else 1) * itemsize))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
