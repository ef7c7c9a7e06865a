"""Name of this machine's CPU, for the figures that state it.

Knows where each system reports it; knows nothing about torch or what is measured.
"""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The maker's name of the CPU, or the kind of machine where the system does not report it."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware", "Model")))
    return " ".join(next(named, "").split()) or platform.processor() or platform.machine()
