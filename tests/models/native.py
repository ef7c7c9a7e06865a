"""Whether this machine should have the native kernel, without asking the kernel: a broken one must fail tests."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from quant.cpu.native import build

_CPU_INFO = Path("/proc/cpuinfo")
HAS_KERNEL = (
    sys.platform == "linux"
    and platform.machine() == "x86_64"
    and build.compiler({}) is not None
    and "avx2" in _CPU_INFO.read_text()
)

needs_native = pytest.mark.skipif(not HAS_KERNEL, reason="no C compiler, or another processor or system")
