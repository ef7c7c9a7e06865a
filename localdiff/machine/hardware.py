"""Names of the CPU and of other devices, for the figures that state them.

Knows where each system reports them; knows nothing about what is measured.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from localdiff.sizes import counted

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The CPU's model name; where the system does not report it, the machine type, on ARM with its core types.

    For core types, Linux only has numbers of the designer and of the design: `0x41/0xd4f` is Arm's Neoverse V2.
    """
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware", "Model")))
    if name := " ".join(next(names, "").split()):
        return name
    numbers = [line.partition(":")[2].strip() for line in lines if line.startswith(("CPU implementer", "CPU part"))]
    cores = dict.fromkeys(map("/".join, zip(numbers[::2], numbers[1::2], strict=False)))
    return ", ".join([platform.processor() or platform.machine(), *cores])


def hardware_name(device: torch.device) -> str:
    """The device's name; for a CPU with the number of threads, on which the last bits of results depend."""
    import torch  # here, since `cpu_name` needs no torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{cpu_name()}, {counted(torch.get_num_threads(), 'thread')}"
    return platform.machine()
