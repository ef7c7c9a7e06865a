"""Devices of this machine, as reported by the system and by NVIDIA's own tool.

Knows `nvidia-smi`; imports no torch. What torch sees is in `torch_devices`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from localdiff.doctor.finding import Finding
from localdiff.hardware import cpu_name
from localdiff.host_memory import host_memory
from localdiff.sizes import shown_size
from quant.process_limits import usable_cores

_SECONDS = 5.0
_MIB = 1 << 20
_BUSY = 0.2
_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""What Linux says of a PCI device: its vendor, and how the class of any kind of display controller begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU as `nvidia-smi` lists it; sizes in bytes, None where the GPU shares the memory of the machine."""

    index: int
    uuid: str
    name: str
    total: int | None
    free: int | None
    driver: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """A process that holds memory of the GPU with this `uuid`."""

    uuid: str
    pid: int
    name: str
    nbytes: int


def check_host() -> list[Finding]:
    """The CPU and the memory."""
    total, free = host_memory()
    cores = os.cpu_count() or 1
    usable = usable_cores()
    name = cpu_name()
    text = f"{name}, {usable} of {cores} threads" if usable < cores else f"{name}, {cores} threads"
    if total is not None:
        text += f", {shown_size(total)} of memory" + (f", {shown_size(free)} free" if free is not None else "")
    facts = {"name": name, "threads": usable, "memory_bytes": total, "free_bytes": free}
    return [Finding(subject="cpu", status="ok", text=text, facts=facts)]


def check_gpus(env: Mapping[str, str], root: Path = Path("/")) -> list[Finding]:
    """NVIDIA GPUs, by `nvidia-smi`, and on Linux one whose driver is not loaded; nothing where there are none."""
    if shutil.which("nvidia-smi", path=env.get("PATH")) is None:
        return _without_driver(root)
    try:
        gpus, processes = read_gpus(env), read_gpu_processes(env)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [
            Finding(
                subject="nvidia-smi",
                status="warn",
                text=f"it does not answer ({_reason(error)})",
                advice="run `nvidia-smi` to see more: most often a driver was updated and needs a restart of the "
                "machine, or Secure Boot keeps it from being loaded",
            )
        ]
    return [_gpu_finding(gpu, processes) for gpu in gpus]


def _without_driver(root: Path) -> list[Finding]:
    """A finding if the system has an NVIDIA GPU and NVIDIA's driver is not loaded for it; only Linux can tell."""
    devices = root / "sys/bus/pci/devices"
    has_gpu = any(
        vendor.read_text().strip() == _NVIDIA and (vendor.parent / "class").read_text().startswith(_DISPLAY)
        for vendor in devices.glob("*/vendor")
    )
    if not has_gpu or (root / "proc/driver/nvidia").exists():
        return []
    return [
        Finding(
            subject="nvidia-smi",
            status="warn",
            text="there is an NVIDIA GPU, and no driver of NVIDIA's is loaded for it",
            advice="install it, 580 or newer (on Ubuntu `sudo ubuntu-drivers install`), and restart the machine",
        )
    ]


def _reason(error: Exception) -> str:
    """What the tool said, in a line, or else the kind of error."""
    said = str(error.stdout or error.stderr).strip() if isinstance(error, subprocess.CalledProcessError) else ""
    return said.partition("\n")[0].rstrip(".") or type(error).__name__


def read_gpus(env: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that `nvidia-smi` lists.

    Raises:
        OSError, subprocess.SubprocessError, ValueError: it cannot be run, fails, times out or prints something else.
    """
    rows = _query(env, "--query-gpu=index,uuid,name,memory.total,memory.free,driver_version")
    return [
        Gpu(index=int(index), uuid=uuid, name=name, total=_bytes(total), free=_bytes(free), driver=driver)
        for index, uuid, name, total, free, driver in rows
    ]


def read_gpu_processes(env: Mapping[str, str]) -> list[GpuProcess]:
    """The processes that hold memory of a GPU; those with unknown shares are left out. Raises as `read_gpus`."""
    rows = _query(env, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
    return [
        GpuProcess(uuid=uuid, pid=int(pid), name=Path(",".join(path)).name, nbytes=nbytes)
        for uuid, pid, *path, used_mib in rows  # a path may have commas in it
        if (nbytes := _bytes(used_mib)) is not None
    ]


def _query(env: Mapping[str, str], query: str) -> list[list[str]]:
    process = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=True,
        env=dict(env),
    )
    return [[cell.strip() for cell in line.split(",")] for line in process.stdout.splitlines() if line.strip()]


def _bytes(mib: str) -> int | None:
    """A size from the text of `nvidia-smi`, which is `[N/A]` for a size that it does not know."""
    return None if mib.startswith("[") else int(mib) * _MIB


def _gpu_finding(gpu: Gpu, processes: list[GpuProcess]) -> Finding:
    facts = {"name": gpu.name, "total_bytes": gpu.total, "free_bytes": gpu.free, "driver": gpu.driver}
    finding = partial(Finding, subject=f"GPU {gpu.index}", facts=facts)
    if gpu.total is None or gpu.free is None:
        return finding(status="ok", text=f"{gpu.name}, driver {gpu.driver}")
    text = f"{gpu.name}, {shown_size(gpu.total)}, {shown_size(gpu.free)} free, driver {gpu.driver}"
    if gpu.total - gpu.free <= _BUSY * gpu.total:
        return finding(status="ok", text=text)
    details = [
        f"{process.name} (process {process.pid}) holds {shown_size(process.nbytes)}"
        for process in processes
        if process.uuid == gpu.uuid
    ]
    return finding(
        status="warn",
        text=f"{text}: others use {shown_size(gpu.total - gpu.free)}",
        advice="to free memory, stop the other programs" + ("" if details else ", which `nvidia-smi` lists"),
        details=details,
        public_details=(),
    )
