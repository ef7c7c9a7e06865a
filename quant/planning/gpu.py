"""The GPU of this machine, as far as a plan and a job need it.

Knows torch's view of it; knows nothing about weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

MIN_FREE_BYTES = 2_000_000_000
"""A GPU with less free memory is left to the programs that use it; a job needs less than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU: its name in torch's words, its own name, and its bytes."""

    device: str
    name: str
    total: int
    free: int


def first_gpu() -> Gpu | None:
    """The first GPU, if there is one that torch can use."""
    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(0)
    return Gpu(device="cuda:0", name=torch.cuda.get_device_name(0), total=total, free=free)


def encoding_device() -> torch.device:
    """Where weights are encoded: the first GPU if it has enough free memory, otherwise the CPU."""
    gpu = first_gpu()
    return torch.device("cuda", 0) if gpu is not None and gpu.free > MIN_FREE_BYTES else torch.device("cpu")
