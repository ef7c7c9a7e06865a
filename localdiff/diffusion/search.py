"""Two-level search along long rows: first for the segment, then within it.

On a CPU a search over a whole vocabulary takes longer than the arithmetic before it, because it is sequential; sums
and maxima of segments are not. Short rows, and rows that do not divide evenly, are searched directly.
Shape letters: R rows, V columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

SEGMENT = 512
_MIN_COLUMNS = 1 << 16


def argmax(values: Tensor) -> Tensor:
    """Column [R] of the largest of `values` [R, V]; the first one if several are equal."""
    if not _is_long(values):
        return values.argmax(dim=-1)
    segments = values.view(len(values), -1, SEGMENT)
    segment = segments.amax(dim=-1).argmax(dim=-1)
    return segment * SEGMENT + _segment(segments, segment).argmax(dim=-1)


def inverse_cumulative(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Column [R] at which the running sum of `weights` [R, V] first exceeds `uniforms` times the total.

    A column of weight 0 is never found, whatever the sums round to.

    Args:
        weights: not negative, not all 0.
        uniforms: [R] in [0, 1).
    """
    if not _is_long(weights):
        cumulative = weights.cumsum(dim=-1)
        # The total is not exactly 1 in fp32; scaling by it keeps the last ids reachable and the index in range.
        return _first_above(cumulative, uniforms * cumulative[:, -1])
    segments = weights.view(len(weights), -1, SEGMENT)
    sums = segments.sum(dim=-1).cumsum(dim=-1)
    target = uniforms * sums[:, -1]
    segment = _first_above(sums, target)
    before = torch.where(segment > 0, sums.gather(1, (segment - 1).clamp(min=0)[:, None]).squeeze(1), 0.0)
    cumulative = _segment(segments, segment).cumsum(dim=-1)
    # A segment's own sum may round below the target; then its last column of nonzero weight is taken.
    last = torch.nextafter(cumulative[:, -1], torch.zeros_like(target))
    return segment * SEGMENT + _first_above(cumulative, torch.minimum(target - before, last))


def _first_above(cumulative: Tensor, target: Tensor) -> Tensor:
    index = torch.searchsorted(cumulative, target[:, None], right=True).squeeze(1)
    return index.clamp_(max=cumulative.shape[1] - 1)


def _segment(segments: Tensor, which: Tensor) -> Tensor:
    """Segment [R, SEGMENT] of each row."""
    return segments[torch.arange(len(segments), device=segments.device), which]


def _is_long(values: Tensor) -> bool:
    return values.shape[1] >= _MIN_COLUMNS and values.shape[1] % SEGMENT == 0
