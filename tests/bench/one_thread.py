"""Times ways of computing the same thing in one thread, by its running time, so other work matters little."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from quant.cpu.memory import keep_freed_memory
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from quant.unsupported import Unsupported

REPEATS = 7


def milliseconds(ways: Sequence[Callable[[], object]]) -> list[float]:
    """The least time of each way; the ways take turns, after one round that warms up."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(REPEATS + 1):
        for times, way in zip(taken, ways, strict=True):
            began = time.thread_time()
            way()
            times.append(1e3 * (time.thread_time() - began))
    return [min(times[1:]) for times in taken]


def library_in_one_thread() -> NativeLibrary:
    """The kernels in C; tells torch to use one thread, and the allocator to keep its memory.

    Raises:
        SystemExit: the kernels are not available.
    """
    torch.set_num_threads(1)
    library = native_library()
    if isinstance(library, Unsupported):
        raise SystemExit(f"the kernel is not there: {library.reason}")
    keep_freed_memory()
    return library
