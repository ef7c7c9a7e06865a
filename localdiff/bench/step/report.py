"""The figures of a measurement, each computed here once for the table and for the line of JSON.

Knows seconds, bytes and operations; knows nothing about how the table looks.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from localdiff.bench.step.ceilings import Ceilings
from localdiff.bench.step.layers import extrapolate
from localdiff.bench.step.measure import CLOCKED, Timings
from localdiff.bench.step.memory import MemoryUse
from localdiff.bench.step.parts import PARTS, Part, Place
from localdiff.bench.step.subject import Subject
from localdiff.bench.step.work import Pass, Work, by_part

STEP_COUNTS = (8, 12, 16, 24, 48)
_CORE_KINDS = ("fp32", "bf16")
"""Dtypes in which attention scores are multiplied; integers would lose them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartFigures:
    """One part of a step: seconds, the least work needed, the seconds that takes at best, and its code path.

    `share` is of the seconds of all parts together.
    """

    part: Part
    seconds: float
    share: float
    work: Work
    floor: float
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The figures of a measurement. Seconds, bytes, operations.

    Attributes:
        step: median of a denoise step, with the 10th and 90th percentile.
        commit: median of a commit pass.
        fused: median of a first step that also commits the block before; None where a run has separate commit passes.
        is_extrapolated: whether some layers were left out and extrapolated from the others.
        parts: in the order of `PARTS`; they are those of another step, the median one of `clocked_steps` that the clock
            of parts slowed down, and add up to `together`, its seconds.
        work: the least work of a step; `commit_work` the same of a commit pass.
        floor: lower bound on the seconds of a step on this machine.
        tokens_per_second: steps per block → committed tokens per second. A block of n steps is n steps and a commit
            pass, or, where there are fused steps, one of those and n - 1 others.
    """

    subject: Subject
    hardware: str
    threads: int
    context: int
    timed_steps: int
    step: float
    step_percentiles: tuple[float, float]
    first_step: float
    commit: float
    fused: float | None
    prefill: float
    prefill_rate: float
    is_extrapolated: bool
    parts: tuple[PartFigures, ...]
    clocked_steps: int
    together: float
    work: Work
    commit_work: Work
    floor: float
    commit_floor: float
    tokens_per_second: dict[int, float]
    ceilings: Ceilings
    memory: MemoryUse
    mean_entropy: float
    experts_hit: float
    busiest: int


def make_report(
    subject: Subject,
    timings: Timings,
    ceilings: Ceilings,
    paths: Mapping[Part, str],
    memory: MemoryUse,
    *,
    context: int,
    hardware: str,
    threads: int,
) -> Report:
    """All figures, for the model that the subject stands for."""
    here, there = subject.built.layers, subject.stands_for.layers
    steps, commits, fused_steps = timings.steps, timings.commits, timings.fused
    is_extrapolated = len(here) != len(there)

    def of_all_layers(places: Mapping[Place, float]) -> Mapping[Place, float]:
        return extrapolate(places, here, there) if is_extrapolated else places

    def factor(places: Mapping[Place, float]) -> float:
        """The ratio by which the parts of layers that were left out make a pass longer."""
        return sum(of_all_layers(places).values()) / sum(places.values())

    step_places, step_factor, commit_factor = of_all_layers(steps.places), factor(steps.places), factor(commits.places)
    canvas = subject.stands_for.config.canvas_length
    canvas_pass = Pass(
        config=subject.stands_for.config,
        schemes=subject.stands_for.schemes,
        itemsize=subject.dtype.itemsize,
        rows=canvas,
        context=context,
        experts_hit=steps.experts_hit,
    )
    step_work, commit_work = canvas_pass.work(), replace(canvas_pass, is_canvas=False).work()
    step = statistics.median(steps.seconds) * step_factor
    # A single step has no deciles; twice the same has those that it should have.
    several = steps.seconds if len(steps.seconds) > 1 else 2 * steps.seconds
    deciles = statistics.quantiles(several, n=10, method="inclusive")
    commit = statistics.median(commits.seconds) * commit_factor
    fused = None if fused_steps is None else statistics.median(fused_steps.seconds) * factor(fused_steps.places)
    parts = _parts(step_places, step_work, ceilings, paths)
    prefill = timings.prefill * commit_factor
    return Report(
        subject=subject,
        hardware=hardware,
        threads=threads,
        context=context,
        timed_steps=len(steps.seconds),
        step=step,
        step_percentiles=(deciles[0] * step_factor, deciles[-1] * step_factor),
        first_step=steps.first * step_factor,
        commit=commit,
        fused=fused,
        prefill=prefill,
        prefill_rate=context / prefill,
        is_extrapolated=is_extrapolated,
        parts=parts,
        clocked_steps=CLOCKED,
        together=sum(step_places.values()),
        work=sum(step_work.values(), Work()),
        commit_work=sum(commit_work.values(), Work()),
        floor=sum(part.floor for part in parts),
        commit_floor=sum(_floor(place, work, ceilings) for place, work in commit_work.items()),
        tokens_per_second={
            count: canvas / (count * step + commit if fused is None else (count - 1) * step + fused)
            for count in STEP_COUNTS
        },
        ceilings=ceilings,
        memory=memory,
        mean_entropy=steps.mean_entropy,
        experts_hit=steps.experts_hit,
        busiest=steps.busiest,
    )


def _parts(
    places: Mapping[Place, float], works: Mapping[Place, Work], ceilings: Ceilings, paths: Mapping[Part, str]
) -> tuple[PartFigures, ...]:
    seconds: dict[Part, float] = defaultdict(float)
    floors: dict[Part, float] = defaultdict(float)
    for (part, _), elapsed in places.items():
        seconds[part] += elapsed
    for place, work in works.items():
        floors[place[0]] += _floor(place, work, ceilings)
    work_of, together = by_part(works), sum(places.values())
    return tuple(
        PartFigures(
            part=part,
            seconds=seconds[part],
            share=seconds[part] / together,
            work=work_of[part],
            floor=floors[part],
            path=paths.get(part, ""),
        )
        for part in PARTS
    )


def _floor(place: Place, work: Work, ceilings: Ceilings) -> float:
    return ceilings.floor(work, kinds=_CORE_KINDS) if place[0] == "attention core" else ceilings.floor(work)
