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


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """Bytes; None where the system does not say.

    Attributes:
        peak: most that the process has had in memory at once, pages of mapped files included.
        anonymous: what it has of its own now.
        mapped: pages of files that are in its memory now.
        device_peak: most that was allocated on a CUDA device.
    """

    peak: int | None
    anonymous: int | None
    mapped: int | None
    device_peak: int | None


def memory_use(device: torch.device, status: Path = STATUS) -> MemoryUse:
    """What has been taken so far."""
    return MemoryUse(
        peak=_field(status, "VmHWM") or _largest_resident(),
        anonymous=_field(status, "RssAnon"),
        mapped=_field(status, "RssFile"),
        device_peak=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    )


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
