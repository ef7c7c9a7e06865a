"""A report of `localdiff bench step` over made-up timings whose sums are easy to check by hand."""

from __future__ import annotations

from functools import cache

from localdiff.bench.step.measure import Passes, Steps, Timings
from localdiff.bench.step.memory import MemoryUse
from localdiff.bench.step.parts import IN_LAYERS, Place
from localdiff.bench.step.report import Report, make_report
from localdiff.bench.step.subject import Subject
from tests.localdiff.bench.step.small import ALL_LAYERS, CEILINGS, small_subject

MEMORY = MemoryUse(peak=3_000_000_000, anonymous=2_000_000_000, mapped=500_000_000, device_peak=None)


def _places(subject: Subject, outside: float) -> dict[Place, float]:
    layers = len(subject.built.layers)
    inside: dict[Place, float] = {(part, layer): 0.01 for part in IN_LAYERS for layer in range(layers)}
    return inside | {("head", None): outside, ("sampling", None): 0.1, ("self-conditioning", None): 0.1}


@cache
def report(
    layers: int = ALL_LAYERS,
    slow_layer: int | None = None,
    *,
    is_fused: bool = False,
    prefills: tuple[float, ...] = (2.0,),
) -> Report:
    """A report on a small model that was built with that many of its layers.

    Args:
        slow_layer: a layer whose dense MLP takes five seconds longer.
        is_fused: whether there is a time for a step that also commits the previous block.
        prefills: seconds of the context, each time that it was read.
    """
    subject = small_subject(layers=layers)
    slow: dict[Place, float] = {} if slow_layer is None else {("dense MLP", slow_layer): 5.01}
    steps = Steps(
        first=3.0,
        seconds=(1.0, 1.1, 1.2, 1.3, 1.4),
        places=_places(subject, 0.4) | slow,
        mean_entropy=1.25,
        experts_hit=0.5,
        busiest=9,
    )
    commits = Passes(seconds=(0.5, 0.7, 0.6), places={p: s for p, s in _places(subject, 0).items() if p[1] is not None})
    fused = Passes(seconds=(1.6, 9.0, 1.5), places=_places(subject, 0.4)) if is_fused else None
    return make_report(
        subject,
        Timings(prefills=prefills, steps=steps, commits=commits, fused=fused),
        CEILINGS,
        {"experts": "a path"},
        MEMORY,
        context=16,
        hardware="a machine",
        threads=2,
    )
