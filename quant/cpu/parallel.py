"""Distributes many small products over threads, each product computed by a single thread.

A product of a few rows takes less than a millisecond, and where each is split over all cores, it waits for the slowest
core: with another program keeping one of two cores busy, the experts of a layer took eight times as long that way, and
1.4 times as long distributed, where a core with less time takes fewer products (`docs/cpu.md`). Knows threads;
knows nothing about weights.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import torch

T = TypeVar("T")

MAX_THREADS = 32
"""Maximum number of threads; Python wakes them one after the other, and some each hold memory for a decoded weight."""


def thread_count(max_threads: int = MAX_THREADS) -> int:
    """Number of threads for work that at most `max_threads` may share: all of torch's, or a power of two.

    Each number has its own pool of threads, which is kept: if any number were possible, there would be hundreds.
    """
    every = min(torch.get_num_threads(), MAX_THREADS)
    return every if max_threads >= every else 1 << (max(1, max_threads).bit_length() - 1)


def parallel_for(works: Sequence[Callable[[T], None]], items: Iterable[T], library: Path | None = None) -> None:
    """Process every item once, by the next free worker; the first exception is raised after all have ended.

    Args:
        works: each is called in one thread only, and stores its own results. A single one is called in this thread,
            and its operations use as many threads as torch is set to; with several, each operation uses one.
        items: their results must not depend on which of the `works` processes them.
        library: a library that `works` call and that may bring an OpenMP runtime other than torch's.
    """
    queue = iter(list(items))  # the iterator of a list gives an item to one thread only
    if len(works) == 1:
        _do(works[0], queue, inference=torch.is_inference_mode_enabled())
        return
    pool = _threads(len(works), library)
    futures = [pool.submit(_do, work, queue, inference=torch.is_inference_mode_enabled()) for work in works]
    errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error


def _do(work: Callable[[T], None], queue: Iterator[T], *, inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():  # both settings are per thread
        for item in queue:
            work(item)


@cache
def _threads(count: int, library: Path | None) -> ThreadPoolExecutor:
    """A pool of `count` started threads, kept until the process ends."""
    setting = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "products", _compute_alone, (library,))
    started = Barrier(count)
    try:
        for future in [pool.submit(started.wait) for _ in range(count)]:
            future.result()
    except BaseException:  # Ctrl-C, or no more threads: those that wait for the rest would keep the process from ending
        started.abort()
        pool.shutdown(wait=False)
        raise
    torch.set_num_threads(setting)  # what a thread sets for itself is also what later threads begin with
    return pool


def _compute_alone(library: Path | None) -> None:
    """Make every operation of this thread single-threaded."""
    torch.get_num_threads()  # the first query in a thread returns the process' setting and overrides the thread's own
    torch.set_num_threads(1)
    set_threads = None if library is None else getattr(ctypes.CDLL(str(library)), "omp_set_num_threads", None)
    if set_threads is not None:
        set_threads(1)
