"""A thread pool that processes slices in parallel and returns results in order.

Knows threads; knows nothing about weights. Torch releases the interpreter's lock while it computes, so that slices
encode side by side, each on one core: far better than splitting every small operation over all cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from quant.process_limits import usable_cores

T = TypeVar("T")
R = TypeVar("R")

MAX_WORKERS = 32
"""Maximum number of workers: more would hold over 1 GB of slices, and wait for the interpreter's lock."""

MAX_GPU_WORKERS = 8
"""Maximum for workers that share a GPU: it computes for one at a time, while the others read, copy and launch."""


def available_workers(device: torch.device) -> int:
    """Cores that this process may use, up to a limit for the device that slices are encoded on."""
    return min(usable_cores(), MAX_WORKERS if device.type == "cpu" else MAX_GPU_WORKERS)


class SlicePool:
    """Threads that apply a function to items, with as many items waiting as there are threads."""

    def __init__(self, threads: ThreadPoolExecutor, workers: int) -> None:
        self._threads, self._window = threads, 2 * workers

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results in the order of `items`, which are consumed only as the work proceeds."""
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(self._threads.submit(function, item))
            if len(waiting) == self._window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def slice_pool(workers: int) -> Iterator[SlicePool]:
    """A pool; while it is open, torch uses one thread per operation in every thread that is started."""
    setting = torch.get_num_threads()
    torch.set_num_threads(1)
    threads = ThreadPoolExecutor(workers, thread_name_prefix="quantize")
    try:
        yield SlicePool(threads, workers)
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(setting)
