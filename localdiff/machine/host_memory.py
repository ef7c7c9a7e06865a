"""Memory of this machine that a process may use, apart from that of its GPUs.

Knows where each system reports it; knows nothing about what it is for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from quant.process_limits import ROOT, machine_memory, memory_limit


def host_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Total and available bytes of memory, within a container's limit; None where the system does not report them."""
    if sys.platform == "win32":
        return _of_windows()
    (total, available), (limit, rest) = machine_memory(root), memory_limit(root)
    return _least(_physical() if total is None else total, limit), _least(available, rest)


def _least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


def _physical() -> int | None:
    if sys.platform == "win32":
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _of_windows() -> tuple[int | None, int | None]:
    if sys.platform != "win32":
        return None, None
    import ctypes

    class MemoryStatus(ctypes.Structure):
        """`MEMORYSTATUSEX`; sizes in bytes."""

        _fields_ = [
            ("dwLength", ctypes.c_uint32),
            ("dwMemoryLoad", ctypes.c_uint32),
            ("ullTotalPhys", ctypes.c_uint64),
            ("ullAvailPhys", ctypes.c_uint64),
            ("ullTotalPageFile", ctypes.c_uint64),
            ("ullAvailPageFile", ctypes.c_uint64),
            ("ullTotalVirtual", ctypes.c_uint64),
            ("ullAvailVirtual", ctypes.c_uint64),
            ("ullAvailExtendedVirtual", ctypes.c_uint64),
        ]

    status = MemoryStatus(dwLength=ctypes.sizeof(MemoryStatus))
    if not ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):
        return None, None
    return status.ullTotalPhys, status.ullAvailPhys
