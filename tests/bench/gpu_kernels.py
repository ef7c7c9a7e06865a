"""What each kernel takes in a denoise step as a run has it, replayed from a graph: as the driver's own clock says.

A clock around the parts of a step, as of `localdiff bench step`, has to launch them one by one and to wait for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # it is public, and not in `__all__`

from localdiff.bench.step.measure import WARM_UP_REPLAYED, Stopwatch
from localdiff.bench.step.subject import random_subject
from localdiff.errors import ResourceError
from quant.released import LAYERS

from .gpu_results import Results

EACH_STEP = "decide_kernel"
"""The kernel that every step launches once: steps are launched ahead, so that some begin or end off the clock."""
SHORT = 60
"""Characters of a name: those of torch's templates have some hundreds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One kernel in a step: its launches, and microseconds of all of them together."""

    name: str
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
    watch = Stopwatch(subject.network, subject.denoiser, subject.dtype, subject.device, context=context)
    with torch.inference_mode():
        watch.prefill()
        events = watch.block_of(watch.denoiser, WARM_UP_REPLAYED + steps)
        for _ in range(WARM_UP_REPLAYED):
            next(events)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            for _ in range(steps):
                next(events)
            torch.cuda.synchronize()
    shares = shares_of(profiled.key_averages())
    if not shares:
        print(f"the profiler has seen no `{EACH_STEP}`")
        return 1
    print(f"kernels of a step, {recipe}, {context:,} tokens of context, {watch.denoiser.path_taken}:")
    for share in shares:
        print(f"  {share.name[:SHORT]:{SHORT}} {share.launches:6.1f} × {share.microseconds / share.launches:8.1f} µs")
        key = {"part": "kernels", "recipe": recipe, "context": context, "name": share.name}
        results.add(key, launches=share.launches, total_microseconds=share.microseconds)
    together = sum(share.microseconds for share in shares)
    print(f"  {'together':{SHORT}} {sum(share.launches for share in shares):6.1f}   {together:10.1f} µs", flush=True)
    return 0


def shares_of(averages: Iterable[Any]) -> list[Share]:
    """A step's kernels, copies and fills, the longest first, from `key_averages` of torch's profiler."""
    launches: dict[str, int] = defaultdict(int)
    microseconds: dict[str, float] = defaultdict(float)
    for event in averages:
        if event.device_type != DeviceType.CPU:  # what launches is there, too
            launches[event.key] += event.count
            microseconds[event.key] += event.self_device_time_total
    steps = sum(count for name, count in launches.items() if name.startswith(EACH_STEP))
    shares = [
        Share(name=name, launches=launches[name] / steps, microseconds=taken / steps)
        for name, taken in microseconds.items()
        if steps
    ]
    return sorted(shares, key=lambda share: -share.microseconds)
