"""What each kernel takes in a denoise step as a run has it, replayed from a graph: as the driver's own clock says.

A clock around the parts of a step, as of `localdiff bench step`, has to launch them one by one and to wait for each.
A kernel is what was compiled, on a grid: `linear_kernel` is some five of them, for as many shapes and tiles. Shapes
that differ in the input of a product alone are one: the output projections of both kinds of layers, and the dense MLP's
down projection.
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
from localdiff.bench.step.subject import random_subject
from localdiff.errors import ResourceError
from quant.released import LAYERS
from tests.bench.gpu_results import SHORT, Results, words_of_grid

EACH_STEP = "decide_kernel"
"""The kernel that every step launches once: steps are launched ahead, so that some begin or end off the clock."""
ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of a trace's events that are work of a card: kernels, copies and fills."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """What tells one kernel from another; what a trace does not say is None, as all but the name of a copy is.

    Attributes:
        grid, block: programs and threads of a launch, along each axis.
        registers: of a thread.
        shared: bytes of shared memory of a block.
    """

    name: str
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    registers: int | None = None
    shared: int | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Compiled:
        """That of an event of a trace, in the words of Kineto, torch's profiler."""
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
    """One kernel in a step: its launches, and microseconds of all of them together."""

    kernel: Compiled
    launches: float
    microseconds: float


def kernels(recipe: str, context: int, steps: int, results: Results) -> int:
    """Profiles some steps, and tells each kernel's share; 1 where the profiler sees none."""
    from torch.profiler import ProfilerActivity, profile

    try:
        make = random_subject(recipe=recipe, layers=LAYERS, context=context, device="cuda:0", dtype="auto")
    except ResourceError as error:
        print(f"left out: {error.message}")
        return 0
    subject = make(lambda _: None)
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
    """The events of a profile: `key_averages` of torch adds up what has one name, whatever it was compiled for."""
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
        if str(event.get("cat", "")).lower() in ON_CARD:  # what launches is there, too
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
