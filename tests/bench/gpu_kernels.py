"""What each kernel takes in a denoise step as a run has it, replayed from a graph and timed by the driver.

A clock around the parts of a step, as in `localdiff bench step`, has to launch them one by one and to wait for each.
A kernel here is a compiled program on a grid: `linear_kernel` is about five of them, for as many shapes and tiles.
Shapes that differ only in the input of a product count as one: the output projections of both kinds of layers, and the
dense MLP's down projection.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from localdiff.bench.step.measure import WARM_UP_REPLAYED, Stopwatch
from tests.bench.gpu_results import SHORT, Results, words_of_grid
from tests.bench.gpu_subject import full_size

EACH_STEP = "decide_kernel"
"""The kernel that every step launches once. It counts the steps: they are launched ahead, so some are cut off."""
ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of a trace's events that are work of the card: kernels, copies and fills."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """What tells one kernel from another. A field that the trace lacks is None; a copy has nothing but its name.

    Attributes:
        grid, block: programs and threads of a launch, along each axis.
        registers: per thread.
        shared: bytes of shared memory of a block.
    """

    name: str
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    registers: int | None = None
    shared: int | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Compiled:
        """Read from an event of a trace, as Kineto, torch's profiler, writes it."""
        told = event.get("args") or {}
        grid, block = (told.get(name) for name in ("grid", "block"))
        return cls(
            name=event.get("name", ""),
            grid=None if grid is None else tuple(grid),
            block=None if block is None else tuple(block),
            registers=told.get("registers per thread"),
            shared=told.get("shared memory"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One kernel in a step: its launches, and their microseconds altogether."""

    kernel: Compiled
    launches: float
    microseconds: float


def kernels(recipe: str, context: int, steps: int, results: Results) -> int:
    """Profiles some steps and prints each kernel's share; returns 1 if the profiler sees none."""
    from torch.profiler import ProfilerActivity, profile

    subject = full_size(recipe, context)
    if subject is None:
        return 0
    watch = Stopwatch(subject, context=context)
    with torch.inference_mode():
        watch.prefill()
        events = watch.block_of(watch.denoiser, WARM_UP_REPLAYED + steps)
        for _ in range(WARM_UP_REPLAYED):
            next(events)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            for _ in range(steps):
                next(events)
            torch.cuda.synchronize()
    shares = shares_of(_traced(profiled))
    if not shares:
        print(f"the profiler has seen no `{EACH_STEP}`")
        return 1
    print(f"kernels of a step, {recipe}, {context:,} tokens of context, {watch.denoiser}:")
    for share in shares:
        kernel, each = share.kernel, share.microseconds / share.launches
        grid = words_of_grid(kernel.grid)
        print(f"  {kernel.name[:SHORT]:{SHORT}} {grid:>14} {share.launches:6.1f} × {each:8.1f} µs")
        key = {"part": "kernels", "recipe": recipe, "context": context, "steps": steps, "name": kernel.name}
        told = {"grid": kernel.grid, "block": kernel.block, "registers": kernel.registers, "shared": kernel.shared}
        results.add(key, **told, launches=share.launches, total_microseconds=share.microseconds)
    launches, together = (sum(getattr(share, name) for share in shares) for name in ("launches", "microseconds"))
    print(f"  {'together':{SHORT}} {'':14} {launches:6.1f}   {together:10.1f} µs", flush=True)
    return 0


def _traced(profiled: Any) -> list[dict[str, Any]]:
    """The events of a profile: torch's `key_averages` adds up all that has one name, however it was compiled."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiled.export_chrome_trace(str(path))
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    return list(found["traceEvents"])


def shares_of(events: Iterable[Mapping[str, Any]]) -> list[Share]:
    """A step's kernels, copies and fills, the longest first, from the events of a trace."""
    launches: dict[Compiled, int] = defaultdict(int)
    microseconds: dict[Compiled, float] = defaultdict(float)
    for event in events:
        if str(event.get("cat", "")).lower() in ON_CARD:  # launches on the host are events, too
            kernel = Compiled.of(event)
            launches[kernel] += 1
            microseconds[kernel] += float(event.get("dur", 0))
    steps = sum(count for kernel, count in launches.items() if kernel.name.startswith(EACH_STEP))
    shares = [
        Share(kernel=kernel, launches=launches[kernel] / steps, microseconds=taken / steps)
        for kernel, taken in microseconds.items()
        if steps
    ]
    return sorted(shares, key=lambda share: -share.microseconds)
