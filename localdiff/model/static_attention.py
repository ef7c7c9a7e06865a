"""Attention with static shapes, whatever the number of cached positions: that number is read on the device.

    with_canvas    [ canvas rows | slots ............ ]     keys and values of a layer, one buffer
                     all seen      seen where held

A step writes its canvas rows before the slots and reads a fixed part of the buffer, so that nothing is copied and the
same launches serve every length up to a bucket's; in Triton no canvas rows are written beside the cache, and they serve
every length. What a row may see is decided in `localdiff.model.attention`; this module applies the same rules to slots
that it applies to positions.
Shape letters: C commit rows, L canvas rows, H query heads, K key-value heads, T slots read, d head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.attention import attend_rows, write_cached
from .attention import Attend, attention
from .cache import LayerCache


def attend_static(cache: LayerCache, length: Tensor, commit_rows: int, bucket: int) -> Attend:
    """Attention of `[commit rows | canvas rows]` through one layer's cache, with fixed shapes.

    Args:
        cache: with room for the canvas rows.
        length: integer scalar on the device: positions in the cache before this pass.
        commit_rows: C, written into the cache as in `attend_rows`.
        bucket: most positions that there may be after this pass; more are not read.
    """
    slots = min(cache.slots, bucket) if cache.window is None else cache.slots

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        if commit_rows:
            new_k, new_v = k[:, :commit_rows], v[:, :commit_rows]
            keys = torch.cat((cache.keys[:, :slots], new_k), dim=1)
            values = torch.cat((cache.values[:, :slots], new_v), dim=1)
            mask = _causal(cache, slots, length, commit_rows)
            parts.append(attention(q[:, :commit_rows], keys, values, mask))
            _write(cache, new_k, new_v, length)
        canvas_rows = q.shape[1] - commit_rows
        both_keys, both_values = (buffer[:, : buffer.shape[1] - cache.slots + slots] for buffer in cache.with_canvas)
        room = both_keys.shape[1] - slots
        both_keys[:, room - canvas_rows : room] = k[:, commit_rows:]
        both_values[:, room - canvas_rows : room] = v[:, commit_rows:]
        held = _positions(cache, slots, length + commit_rows) >= 0
        visible = torch.cat((held.new_ones(canvas_rows), held))
        first = room - canvas_rows
        parts.append(attention(q[:, commit_rows:], both_keys[:, first:], both_values[:, first:], visible[None]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    return attend


def attend_through_triton(cache: LayerCache, length: Tensor, commit_rows: int) -> Attend:
    """The same in one or two launches, whatever the length, and one after them that writes the commit rows."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = attend_rows(
            q,
            k,
            v,
            keys=cache.keys,
            values=cache.values,
            length=length,
            commit_rows=commit_rows,
            window=cache.window,
        )
        write_cached(k, v, keys=cache.keys, values=cache.values, length=length, commit_rows=commit_rows)
        return y

    return attend


def _positions(cache: LayerCache, slots: int, length: Tensor) -> Tensor:
    """Position [T] that each slot holds when `length` of them are cached; negative where it holds none."""
    slot = torch.arange(slots, device=cache.keys.device)
    newest = length - 1
    if cache.window is None:
        return slot.masked_fill(slot > newest, -1)
    return newest - (newest - slot) % cache.slots


def _causal(cache: LayerCache, slots: int, length: Tensor, commit_rows: int) -> Tensor:
    """Which of `[slots | commit]` keys each commit row sees: bool [C, T + C]."""
    rows = length + torch.arange(commit_rows, device=cache.keys.device)
    held = _positions(cache, slots, length)
    keys = torch.cat((held, rows))
    visible = (keys >= 0) & (keys <= rows[:, None])
    return visible if cache.window is None else visible & (keys > rows[:, None] - cache.window)


def _write(cache: LayerCache, keys: Tensor, values: Tensor, length: Tensor) -> None:
    """Stores rows [K, C, d] after the positions that are held; a ring keeps only the newest."""
    count = keys.shape[1]
    kept = min(count, cache.slots)
    positions = length + torch.arange(count - kept, count, device=cache.keys.device)
    cache.keys.index_copy_(1, positions % cache.slots, keys[:, count - kept :])
    cache.values.index_copy_(1, positions % cache.slots, values[:, count - kept :])
