"""Keeps freed memory in the process for the next pass instead of returning it to the system.

A pass allocates and frees the same few megabytes hundreds of times, and by default the C library returns each of them
at once: the system then hands out zeroed pages, one by one, which was measured to take longer than quantizing the
activations that go into them. Knows glibc; does nothing elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_MMAP_THRESHOLD = (-3, 32 << 20)
"""`M_MMAP_THRESHOLD` and the largest value that glibc takes: anything smaller comes from memory that is kept."""
_TRIM_THRESHOLD = (-1, 1 << 30)
"""`M_TRIM_THRESHOLD`: this much is kept at most."""
_CHOSEN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Raise glibc's thresholds, once, unless the environment sets them; returns whether that was done."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _CHOSEN):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return all(mallopt(parameter, value) == 1 for parameter, value in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
