"""A stand-in for the attention kernels, in torch, where Triton's interpreter would take too long: `patched()`.

Like the kernels, it reads the number of cached positions on the device, and its shapes depend on nothing but those of
its arguments: it attends to every slot of the cache, and masks slots that hold nothing.
Shape letters: N rows (C commit + L canvas), H query heads, K key-value heads, T slots, d head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

from localdiff.model import attention


def attend_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    length: Tensor,
    commit_rows: int,
    window: int | None,
) -> Tensor:
    """Arguments and result are those of `localdiff.kernels.attention.attend_rows`."""
    row = torch.arange(q.shape[1], device=q.device)
    # All canvas rows get the position after the commit rows: they see each other, and commit rows do not see them.
    position = length + row.clamp(max=commit_rows)
    slot = torch.arange(keys.shape[1], device=q.device)
    newest = length - 1
    # The newest cached position of those that share a slot; negative if the slot holds nothing.
    key_position = torch.cat((newest - (newest - slot) % max(1, keys.shape[1]), position))
    mask = (key_position >= 0) & (key_position <= position[:, None])
    if window is not None:
        mask &= key_position > position[:, None] - window
    return attention.attention(q, torch.cat((keys, k), dim=1), torch.cat((values, v), dim=1), mask)


def write_cached(k: Tensor, v: Tensor, *, keys: Tensor, values: Tensor, length: Tensor, commit_rows: int) -> None:
    """Arguments are those of `localdiff.kernels.attention.write_cached`; a ring keeps only the newest rows."""
    slots = keys.shape[1]
    first = max(0, commit_rows - slots)
    if first == commit_rows:
        return
    slot = (length + torch.arange(first, commit_rows, device=keys.device)) % slots
    keys.index_copy_(1, slot, k[:, first:commit_rows])
    values.index_copy_(1, slot, v[:, first:commit_rows])


@contextmanager
def patched() -> Iterator[None]:
    """Puts both functions in place of the kernels' launchers."""
    with mock.patch.multiple(attention, attend_rows=attend_rows, write_cached=write_cached):
        yield
