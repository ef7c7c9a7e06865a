"""The figures of a measurement, each computed here once for the table and for the line of JSON.

Knows seconds, bytes and operations; knows nothing about how the table looks.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from localdiff.bench.step.ceilings import Ceilings
from localdiff.bench.step.layers import extrapolate
from localdiff.bench.step.measure import Steps, Timings
from localdiff.bench.step.memory import MemoryUse
from localdiff.bench.step.parts import PARTS, Part, Place
from localdiff.bench.step.subject import Subject
from localdiff.bench.step.work import Pass, Work, by_part

STEP_COUNTS = (8, 12, 16, 24, 48)
_CORE_KINDS = ("fp32", "bf16")
"""Dtypes in which attention scores are multiplied; integers would lose them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartFigures:
    """One part of a step: seconds, the least work needed, the seconds that this work takes at best, and its code path.

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
        measured: the steps as they were timed; the figures below are those of all layers.
        step: median of a denoise step, with the 10th and 90th percentile.
        commit: median of a commit pass.
        fused: median of a first step that also commits the block before; None where a run has separate commit passes.
        prefill: median of the times that the whole context took, with the 10th and 90th percentile.
        prefills: how many these were.
        parts: in the order of `PARTS`; they are those of another step, the median one of `CLOCKED` that the clock of
            parts slowed down.
        commit_work: the least work of a commit pass; `commit_floor` the seconds that it takes at best.
    """

    subject: Subject
    hardware: str
    threads: int
    context: int
    measured: Steps
    step: float
    step_percentiles: tuple[float, float]
    first_step: float
    commit: float
    fused: float | None
    prefill: float
    prefill_percentiles: tuple[float, float]
    prefills: int
    parts: tuple[PartFigures, ...]
    commit_work: Work
    commit_floor: float
    ceilings: Ceilings
    memory: MemoryUse

    @property
    def together(self) -> float:
        """Seconds of all parts."""
        return sum(part.seconds for part in self.parts)

    @property
    def work(self) -> Work:
        """The least work of a step."""
        return sum((part.work for part in self.parts), Work())

    @property
    def floor(self) -> float:
        """Lower bound on the seconds of a step on this machine."""
        return sum(part.floor for part in self.parts)

    @property
    def prefill_rate(self) -> float:
        """Tokens of the context that are read per second."""
        return self.context / self.prefill

    @property
    def tokens_per_second(self) -> dict[int, float]:
        """Steps per block → committed tokens per second.

        A block of n steps is n steps and a commit pass, or, where there are fused steps, one of those and n - 1 others.
        """
        canvas = self.subject.stands_for.config.canvas_length
        besides = self.commit if self.fused is None else self.fused - self.step
        return {count: canvas / (count * self.step + besides) for count in STEP_COUNTS}


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
    steps, commits, fused_steps = timings.steps, timings.commits, timings.fused

    def of_all_layers(places: Mapping[Place, float]) -> Mapping[Place, float]:
        if not subject.is_cut:
            return places
        return extrapolate(places, subject.built.layers, subject.stands_for.layers)

    def factor(places: Mapping[Place, float]) -> float:
        """How many times longer a pass is with the layers that were left out."""
        return sum(of_all_layers(places).values()) / sum(places.values())

    step_factor, commit_factor = factor(steps.places), factor(commits.places)
    canvas_pass = Pass(
        config=subject.stands_for.config,
        schemes=subject.stands_for.schemes,
        itemsize=subject.dtype.itemsize,
        rows=subject.stands_for.config.canvas_length,
        context=context,
        experts_hit=steps.experts_hit,
    )
    commit_work = replace(canvas_pass, is_canvas=False).work()
    return Report(
        subject=subject,
        hardware=hardware,
        threads=threads,
        context=context,
        measured=steps,
        step=statistics.median(steps.seconds) * step_factor,
        step_percentiles=_percentiles(steps.seconds, step_factor),
        first_step=steps.first * step_factor,
        commit=statistics.median(commits.seconds) * commit_factor,
        fused=None if fused_steps is None else statistics.median(fused_steps.seconds) * factor(fused_steps.places),
        prefill=statistics.median(timings.prefills) * commit_factor,
        prefill_percentiles=_percentiles(timings.prefills, commit_factor),
        prefills=len(timings.prefills),
        parts=_parts(of_all_layers(steps.places), canvas_pass.work(), ceilings, paths),
        commit_work=sum(commit_work.values(), Work()),
        commit_floor=sum(_floor(place, work, ceilings) for place, work in commit_work.items()),
        ceilings=ceilings,
        memory=memory,
    )


def _percentiles(seconds: Sequence[float], factor: float) -> tuple[float, float]:
    """The 10th and the 90th percentile, times a factor."""
    # A single time has no deciles; the same time twice has itself as each of them.
    several = seconds if len(seconds) > 1 else [*seconds, *seconds]
    deciles = statistics.quantiles(several, n=10, method="inclusive")
    return deciles[0] * factor, deciles[-1] * factor


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
