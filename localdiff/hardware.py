"""What the processor of this machine is called, for the figures that name it.

Knows where each system writes it down; knows nothing about torch or what is measured.
"""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor's name in the words of its maker, or the kind of machine where no system says it."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware", "Model")))
    return " ".join(next(named, "").split()) or platform.processor() or platform.machine()
