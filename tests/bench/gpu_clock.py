"""Microseconds of work on a card, as a step sees it: replayed from a graph, over caches filled by something else."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import cache

import torch

from localdiff.static.recording import Recorder

REPEATS = 50
FLUSHED = 256 << 20
"""Bytes that are overwritten and read before each run, more than any card's second-level cache holds."""


def median_microseconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median run with a cold second-level cache; it is recorded as a graph where that can be."""
    flush = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        work()
    recorder = _recorder(torch.cuda.current_device())

    def once() -> None:
        work()

    graph = recorder.record(once)
    run = work if graph is None else graph.replay  # where it was not recorded, a warning says why
    times = []
    for _ in range(repeats):
        flush.zero_()
        flush.sum()  # lines that were only written would go back to memory while the work is on the clock
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        run()
        ended.record()
        torch.cuda.synchronize()
        times.append(1000 * began.elapsed_time(ended))
    recorder.forget()
    return statistics.median(times)


@cache
def _recorder(device: int) -> Recorder:
    """One for all, since each has a stream, and each stream a workspace of cuBLAS's."""
    return Recorder(torch.device("cuda", device))
