"""How much memory this process and its device have taken.

Knows where systems write it down; knows nothing about models.
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
"""What Linux takes there to forget the most that was resident (proc(5))."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """Bytes; None where the system does not say.

    Attributes:
        peak: most that the process has had in memory at once since `forget_peak`, pages of mapped files included.
        anonymous: what it has of its own now.
        mapped: pages of files that are in its memory now.
        device_peak: most that torch's allocator has held on a CUDA device since `forget_peak`. Tensors are only part of
            that: replayed CUDA graphs compute in memory that belongs to none, and a device must have it too.
    """

    peak: int | None
    anonymous: int | None
    mapped: int | None
    device_peak: int | None


def forget_peak(device: torch.device, status: Path = STATUS, clear: Path = CLEAR) -> int:
    """Starts the peaks anew, so that they are no other work's.

    Returns:
        Bytes of the process's peak that the system still remembers; 0 where it forgot.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what is held for nobody would stay in the peak
        torch.cuda.reset_peak_memory_stats(device)
    try:
        clear.write_text(_CLEAR_PEAK)
    except OSError:  # no Linux, or one that does not allow it
        return _peak(status) or 0
    return 0


def memory_use(device: torch.device, status: Path = STATUS, *, remembered: int = 0) -> MemoryUse:
    """What has been taken.

    Args:
        remembered: what `forget_peak` returned; a peak that is no higher is that of the work before.
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
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return None
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
