"""The device that a job encodes on, and the GPUs of this machine, as far as a plan names them.

Knows torch's view of them; knows nothing about weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch

from quant.gpus import gpu_memory, usable_gpus

MIN_FREE_BYTES = 2_000_000_000
"""A GPU with less free memory is left to the programs that use it; a job needs less than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU: torch's name for the device, the product name, and its bytes of memory."""

    device: str
    name: str
    total: int
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """The device that encodes weights.

    Attributes:
        requested: what was asked for: `auto` or the name of a device.
        device: the CPU or a CUDA device.
        gpu: the CUDA device, or the first GPU of this machine, if there is one that torch can use.
        further: other GPUs that the result may run on if `gpu` is too small; none if a GPU was named. Their memory has
            not been queried: a query creates a context, which holds half a GB for as long as the job runs.
    """

    requested: str
    device: torch.device
    gpu: Gpu | None
    further: tuple[torch.device, ...] = ()

    @classmethod
    def automatic(cls) -> Self:
        """The first GPU if it has enough free memory, otherwise the CPU."""
        usable = usable_gpus()
        gpu = _gpu(usable[0].index) if usable else None
        device = gpu.device if gpu is not None and gpu.free > MIN_FREE_BYTES else "cpu"
        return cls(requested="auto", device=torch.device(device), gpu=gpu, further=usable[1:])

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """A CUDA device; for any other device the CPU, since nothing else encodes."""
        if device.type == "cuda":
            return cls(requested=str(device), device=device, gpu=_gpu(device.index or 0))
        return replace(cls.automatic(), requested=device.type, device=torch.device("cpu"))

    def roomiest(self) -> Gpu | None:
        """The GPU with the most free memory, including the further ones, which are queried now."""
        gpus = (*filter(None, (self.gpu,)), *(_gpu(device.index) for device in self.further))
        return max(gpus, key=lambda gpu: gpu.free, default=None)


def _gpu(index: int) -> Gpu:
    free, total = gpu_memory(index)
    return Gpu(device=f"cuda:{index}", name=torch.cuda.get_device_name(index), total=total, free=free)
