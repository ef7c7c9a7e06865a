"""Microseconds of work on a card, as a step sees it: replayed from a graph, over caches filled by something else."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

REPEATS = 50
FLUSHED = 256 << 20
"""Bytes that are overwritten and read before each run, more than any card's second-level cache holds."""


def median_microseconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median run with a cold second-level cache; it is recorded as a graph where that can be."""
    flush = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        work()
    run = work
    graph = torch.cuda.CUDAGraph()
    try:
        # A recording that breaks off leaves its thread on the stream of the recording: the outer one takes it back.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
            work()
        run = graph.replay
    except RuntimeError as error:
        torch.cuda.synchronize()
        print(f"    not recorded: {str(error).splitlines()[0]}", flush=True)
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
    return statistics.median(times)
