"""Devices of this machine, as reported by the system and by NVIDIA's own tool.

Knows `nvidia-smi`; imports no torch. What torch sees is in `torch_devices`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from localdiff.doctor.finding import Finding
from localdiff.machine.hardware import cpu_name
from localdiff.machine.host_memory import host_memory
from localdiff.sizes import shown_size
from quant.process_limits import usable_cores

_SECONDS = 5.0
_MIB = 1 << 20
_BUSY = 0.2
_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""What Linux says of a PCI device: its vendor, and how the class of any kind of display controller begins."""


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
        gpus = _query(env, "--query-gpu=index,uuid,name,memory.total,memory.free,driver_version")
        holders = _holders(env)
        return [
            _gpu_finding(index, name, driver, _bytes(total), _bytes(free), holders[uuid])
            for index, uuid, name, total, free, driver in gpus
        ]
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


def _holders(env: Mapping[str, str]) -> defaultdict[str, list[str]]:
    """The processes that hold memory of a GPU, by its UUID; those with unknown shares are left out."""
    holders = defaultdict[str, list[str]](list)
    for uuid, pid, *path, used_mib in _query(env, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"):
        if (nbytes := _bytes(used_mib)) is not None:
            name = Path(",".join(path)).name  # a path may have commas in it
            holders[uuid].append(f"{name} (process {pid}) holds {shown_size(nbytes)}")
    return holders


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


def _gpu_finding(
    index: str, name: str, driver: str, total: int | None, free: int | None, holders: list[str]
) -> Finding:
    """A GPU, with its sizes in bytes, None where it shares the memory of the machine."""
    facts = {"name": name, "total_bytes": total, "free_bytes": free, "driver": driver}
    finding = partial(Finding, subject=f"GPU {index}", facts=facts)
    if total is None or free is None:
        return finding(status="ok", text=f"{name}, driver {driver}")
    text = f"{name}, {shown_size(total)}, {shown_size(free)} free, driver {driver}"
    if total - free <= _BUSY * total:
        return finding(status="ok", text=text)
    return finding(
        status="warn",
        text=f"{text}: others use {shown_size(total - free)}",
        advice="to free memory, stop the other programs" + ("" if holders else ", which `nvidia-smi` lists"),
        details=holders,
        public_details=(),
    )
