"""Memory that the process keeps and returns: freed memory stays for the next pass, mapped pages are released once read.

Knows Linux and glibc; does nothing elsewhere.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

from torch import Tensor

MAPS = "/proc/self/maps"

_DONTNEED = 4
"""`MADV_DONTNEED`: pages of a mapped file are read from the file again at the next access."""
_MMAP_THRESHOLD = (-3, 32 << 20)
"""`M_MMAP_THRESHOLD` and the largest value that glibc takes: anything smaller comes from memory that is kept."""
_TRIM_THRESHOLD = (-1, 1 << 30)
"""`M_TRIM_THRESHOLD`: at most this much is kept."""
_CHOSEN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Raises glibc's thresholds, once, unless the environment sets them; returns whether that was done.

    A pass allocates and frees the same few megabytes hundreds of times, and by default the C library returns each of
    them at once: the system then hands out zeroed pages, one by one, which was measured to take longer than quantizing
    the activations that go into them.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _CHOSEN):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return all(mallopt(parameter, value) == 1 for parameter, value in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))


def release_pages(tensors: Iterable[Tensor]) -> int:
    """Returns the pages within contiguous tensors to the system, where they are mapped from a file.

    A converted weight has been read once from a mapped checkpoint. Its pages would count as the process'
    memory until the system runs short, as if the weight were held twice. Later reads of such a tensor read the file
    again, so it must not have been written to.

    Returns:
        Bytes that were returned to the system.
    """
    if not sys.platform.startswith("linux"):
        return 0
    files = _FileMappings()
    return sum(_release_pages(tensor, files) for tensor in tensors)


def _release_pages(tensor: Tensor, files: _FileMappings) -> int:
    start, stop = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    start, stop = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
    if stop <= start or not tensor.is_contiguous() or not files.hold(start, stop):
        return 0
    is_released = ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _DONTNEED) == 0
    return stop - start if is_released else 0


class _FileMappings:
    """The address ranges at which files are mapped into this process; none are known where `/proc` is not mounted."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        with suppress(OSError), open(MAPS, encoding="utf-8", errors="replace") as maps:
            for line in maps:  # start-stop permissions offset device inode path
                addresses, _, _, _, inode, *_ = line.split()
                if inode != "0":
                    start, stop = addresses.split("-")
                    self._starts.append(int(start, 16))
                    self._stops.append(int(stop, 16))

    def hold(self, start: int, stop: int) -> bool:
        """Whether one mapping holds all of these addresses."""
        last = bisect_right(self._starts, start) - 1
        return last >= 0 and stop <= self._stops[last]
