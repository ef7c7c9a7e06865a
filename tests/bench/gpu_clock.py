"""Microseconds of work on a card as in a step: replayed from a graph, with caches that hold something else."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from localdiff.denoising.static.cuda_graphs import GraphCapturer

REPEATS = 50
FLUSHED = 256 << 20
"""Bytes that are overwritten and read before each run: more than any card's second-level cache holds."""
WARM_SECONDS = 0.3
"""Work before anything is timed: a card that was idle computes at a fraction of its clock for a while."""
_AT_ONCE = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocked:
    """Microseconds: the median, and the 10th and 90th percentile."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:9.1f} µs ({self.low:.1f} to {self.high:.1f})"


def clocked(work: Callable[[], object], repeats: int = REPEATS) -> Clocked:
    """Runs work with a cold second-level cache, captured as a graph where that is possible."""
    flush = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        work()
    capturer = _capturer(torch.cuda.current_device())

    def once() -> None:
        work()

    graph = capturer.capture(once)
    run = work if graph is None else graph.replay  # where it was not captured, a warning says why
    _warm(run)
    times = []
    for _ in range(repeats):
        flush.zero_()
        flush.sum()  # written lines that nobody read would be flushed to memory while the work is timed
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        run()
        ended.record()
        torch.cuda.synchronize()
        times.append(1000 * began.elapsed_time(ended))
    capturer.forget()
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    return Clocked(median=statistics.median(times), low=tenths[0], high=tenths[-1])


def _warm(run: Callable[[], object]) -> None:
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_SECONDS:
        for _ in range(_AT_ONCE):
            run()
        torch.cuda.synchronize()


@cache
def _capturer(device: int) -> GraphCapturer:
    """One capturer for everything, since each has a stream, and each stream a workspace of cuBLAS's."""
    return GraphCapturer(torch.device("cuda", device))
