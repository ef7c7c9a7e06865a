"""Devices that torch can compute on here, and how much memory each has free.

Knows torch; knows nothing about models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from localdiff.doctor.finding import Finding
from localdiff.load.devices import free_bytes, resolve_device
from localdiff.machine.host_memory import host_memory
from localdiff.sizes import shown_size
from quant.gpus import seen_gpus, shares_host_memory, usable_gpus, why_unseen, why_unusable
from quant.instructions import has_bf16_matmul
from quant.unsupported import Unsupported


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device that torch can use; sizes in bytes, None where unknown."""

    device: torch.device
    title: str
    total: int | None
    free: int | None


def devices() -> list[Device]:
    """Every device that torch can compute on, the one that `auto` means first."""
    accelerators = []
    for device in usable_gpus():
        properties = torch.cuda.get_device_properties(device)
        title = f"{properties.name}, compute {properties.major}.{properties.minor}"
        title += ", shares the memory" if shares_host_memory(device) else ""
        accelerators.append(Device(device=device, title=title, total=properties.total_memory, free=free_bytes(device)))
    total, free = host_memory()
    if torch.backends.mps.is_available():
        accelerators.append(
            Device(device=torch.device("mps"), title="Apple GPU, shares the memory", total=total, free=free)
        )
    cpu = Device(
        device=torch.device("cpu"), title=f"CPU, {torch.backends.cpu.get_cpu_capability()}", total=total, free=free
    )
    default = resolve_device("auto")
    return sorted([*accelerators, cpu], key=lambda device: device.device != default)


def check_devices(available: Sequence[Device], *, gpus: int, driver: str | None = None) -> list[Finding]:
    """The devices that torch sees, compared with the number of GPUs that the system has, and with its driver."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    facts = {
        "torch_cuda": torch.version.cuda,
        "auto": str(available[0].device),
        "devices": [
            {"device": str(one.device), "title": one.title, "total_bytes": one.total, "free_bytes": one.free}
            for one in available
        ],
        "threads": torch.get_num_threads(),
        "bf16": "in hardware" if has_bf16_matmul() else "emulated",
    }
    text = f"torch {torch.__version__} ({build}); `auto` is {available[0].device} ({available[0].title})"
    finding = partial(Finding, subject="devices", details=[_line(one) for one in available], facts=facts)
    has_gpu = any(one.device.type == "cuda" for one in available)
    if (unusable := _unusable()) is not None:
        advice = None if has_gpu else unusable.remedy  # another build may have no code for the one that is used
        return [finding(status="ok" if has_gpu else "warn", text=f"{text}; {unusable.reason}", advice=advice)]
    if gpus and not has_gpu:
        unseen = f"there {'is a GPU' if gpus == 1 else f'are {gpus} GPUs'} that torch does not see"
        return [finding(status="warn", text=f"{unseen}; {text}", advice=why_unseen(driver))]
    return [finding(status="ok", text=text)]


def _unusable() -> Unsupported | None:
    """What keeps torch from a GPU that it sees."""
    return next(filter(None, map(why_unusable, seen_gpus())), None)


def _line(device: Device) -> str:
    sizes = [] if device.total is None else [shown_size(device.total)]
    sizes += [] if device.free is None else [f"{shown_size(device.free)} free"]
    return ", ".join([f"{device.device}: {device.title}", *sizes])
