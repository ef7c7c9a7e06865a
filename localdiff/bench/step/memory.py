"""Peak and current memory use of this process and its device.

Knows where systems report it; knows nothing about models.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
_CLEAR_PEAK = "5"
"""What is written there to make Linux reset the peak of resident memory (proc(5))."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """Memory use in bytes; None where the system does not report it.

    Attributes:
        peak: most that the process has had in memory at once since `forget_peak`, pages of mapped files included.
        anonymous: its anonymous memory now.
        mapped: pages of mapped files that are resident now.
        device_peak: most that torch's allocator reserved on a CUDA device since `forget_device_peak`. Allocated tensors
            are a part of that: replayed CUDA graphs compute in memory of their own, which the device must have too.
    """

    peak: int | None
    anonymous: int | None
    mapped: int | None
    device_peak: int | None


def forget_peak(device: torch.device, status: Path = STATUS, clear: Path = CLEAR) -> int:
    """Resets the peaks, so that they do not include earlier work.

    Returns:
        The process's peak in bytes, if the system still remembers it; 0 if it was reset.
    """
    forget_device_peak(device)
    try:
        clear.write_text(_CLEAR_PEAK)
    except OSError:  # not Linux, or not allowed
        return _peak(status) or 0
    return 0


def forget_device_peak(device: torch.device) -> None:
    """Resets the peak of a CUDA device alone."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # cached memory that nobody uses would count as this work's
        torch.cuda.reset_peak_memory_stats(device)


def memory_use(device: torch.device, status: Path = STATUS, *, remembered: int = 0) -> MemoryUse:
    """The memory in use, and its peaks.

    Args:
        remembered: what `forget_peak` returned; a peak that is no higher comes from earlier work.
    """
    peak = _peak(status)
    return MemoryUse(
        peak=None if peak is None or peak <= remembered else peak,
        anonymous=_field(status, "RssAnon"),
        mapped=_field(status, "RssFile"),
        device_peak=torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None,
    )


def _peak(status: Path) -> int | None:
    return _field(status, "VmHWM") or _largest_resident()


def _field(status: Path, name: str) -> int | None:
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _largest_resident() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
