"""Data-parallel training: processes that train one network, each on its own rows of every batch.

    torchrun --standalone --nproc-per-node 2 -m localdiff.demo.training.train WORK

On a CPU two processes of one thread each are nearly twice as fast as one: the operations of so small a network are too
short to be split between threads. Knows tensors; knows no batches and no networks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Team:
    """One process in a group of `size`. `Team()` is a single process.

    Attributes:
        rank: number of this process, from 0; the first one writes files and reports.
        rows: its rows of a batch.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.rows = slice(rank, None, size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """All-reduces the tensors: each becomes its sum over all processes, which must all make the same call."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        totals = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, total in zip(tensors, totals, strict=True):
            tensor.copy_(total.view_as(tensor))

    def wait(self) -> None:
        """Waits until all processes have called this."""
        if self.size > 1:
            dist.barrier()


def join() -> Team:
    """The team that torchrun started, or a team of one where it did not."""
    if not dist.is_torchelastic_launched():
        return Team()
    dist.init_process_group("gloo")
    return Team(dist.get_rank(), dist.get_world_size())
