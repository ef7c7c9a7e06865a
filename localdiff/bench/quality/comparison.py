"""Two models, the same prompts, the same noise: everything that is measured, group by group.

One model is loaded at a time, so that two which do not fit the device together can be compared: what the first one
answered and believed is kept in host memory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from ...engine import Engine, ModelIdentity
from ...options import GenerateOptions
from .answers import Answer, ask
from .canvases import Beliefs, Canvas, agreement, believe, divergence
from .estimate import Estimate, estimate
from .questions import Question

WALKS = 20
"""Questions of a group whose canvases are compared step by step; their distributions lie in host memory."""

ALL = "all"

Progress: TypeAlias = Callable[[str], None]
"""Told, in words, how far it is."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What one model did.

    Attributes:
        identity: which model.
        hardware: what it ran on.
        answers: one list a question, one answer a seed.
        beliefs: question → what it believed on the first model's canvases.
        canvases: question → those canvases.
    """

    identity: ModelIdentity
    hardware: str
    answers: list[list[Answer]]
    beliefs: dict[int, Beliefs]
    canvases: dict[int, tuple[Canvas, ...]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One group of questions. Differences are the second model's value less the first one's, paired by question.

    Attributes:
        score, score_change: share of right answers of the first model, and its difference; None where nobody judges.
        steps, steps_change: denoise steps a block of the first model, and the difference in units of them.
        divergence: nats a position, on fixed canvases.
        agreement: share of equal drafts there.
        same: share of runs in which both commit the same ids.
    """

    group: str
    questions: int
    runs: int
    score: Estimate | None
    score_change: Estimate | None
    steps: Estimate
    steps_change: Estimate
    divergence: Estimate
    agreement: Estimate
    same: Estimate


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that two models were measured by."""

    first: ModelIdentity
    second: ModelIdentity
    hardware: str
    seeds: int
    rows: list[Row] = field(default_factory=list)


def compare(
    first: Callable[[], Engine],
    others: Sequence[Callable[[], Engine]],
    questions: Sequence[Question],
    options: Sequence[GenerateOptions],
    progress: Progress,
) -> Iterator[Comparison]:
    """Ask a model everything, then hold each of the others against it.

    Args:
        first: loads the model that the others are held against.
        others: load those.
        questions: what to ask.
        options: settings of the runs of each question, which differ in their seed.
        progress: told how far it is.
    """
    reference = _observe("first", first, questions, options, progress, None)
    groups = list(dict.fromkeys(question.group for question in questions))
    members = {group: [i for i, question in enumerate(questions) if question.group == group] for group in groups}
    if len(groups) > 1:
        members[ALL] = list(range(len(questions)))
    for number, load in enumerate(others, 2):
        which = "second" if len(others) == 1 else f"{number}."
        other = _observe(which, load, questions, options, progress, reference.canvases)
        yield Comparison(
            first=reference.identity,
            second=other.identity,
            hardware=other.hardware,
            seeds=len(options),
            rows=[_row(group, indices, reference, other) for group, indices in members.items()],
        )


def _observe(
    which: str,
    load: Callable[[], Engine],
    questions: Sequence[Question],
    options: Sequence[GenerateOptions],
    progress: Progress,
    given: dict[int, tuple[Canvas, ...]] | None,
) -> Observed:
    """One model's answers, and its beliefs on given canvases, or on its own where none are given."""
    progress(f"loading the {which} model")
    engine = load()
    walked = set(_walked(questions))
    answers: list[list[Answer]] = []
    canvases: dict[int, tuple[Canvas, ...]] = {}
    beliefs = {}
    for index, question in enumerate(questions):
        progress(f"{which} model: question {index + 1:,} of {len(questions):,} ({question.group})")
        runs = [ask(engine, question, each) for each in options]
        answers.append([answer for answer, _ in runs])
        if index in walked:
            canvases[index] = runs[0][1] if given is None else given[index]
            beliefs[index] = believe(engine, question, canvases[index])
    observed = Observed(
        identity=engine.identity,
        hardware=engine.hardware,
        answers=answers,
        beliefs=beliefs,
        canvases=canvases,
    )
    del engine
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return observed


def _walked(questions: Sequence[Question]) -> Iterator[int]:
    """The first `WALKS` questions of each group."""
    seen: dict[str, int] = {}
    for index, question in enumerate(questions):
        seen[question.group] = seen.get(question.group, 0) + 1
        if seen[question.group] <= WALKS:
            yield index


def _row(group: str, indices: Sequence[int], first: Observed, second: Observed) -> Row:
    pairs = [list(zip(first.answers[i], second.answers[i], strict=True)) for i in indices]
    walked = [i for i in indices if i in first.beliefs]
    steps = estimate([_mean(a.steps_a_block for a, _ in runs) for runs in pairs])
    change = estimate([_mean(b.steps_a_block - a.steps_a_block for a, b in runs) for runs in pairs])
    judged = all(answer.right is not None for runs in pairs for pair in runs for answer in pair)
    return Row(
        group=group,
        questions=len(indices),
        runs=sum(map(len, pairs)),
        score=estimate([_mean(bool(a.right) for a, _ in runs) for runs in pairs], largest=1.0) if judged else None,
        score_change=estimate([_mean(bool(b.right) - bool(a.right) for a, b in runs) for runs in pairs], largest=1.0)
        if judged
        else None,
        steps=steps,
        steps_change=change.scaled(1 / steps.mean),
        divergence=estimate([divergence(first.beliefs[i], second.beliefs[i]) for i in walked]),
        agreement=estimate([agreement(first.beliefs[i], second.beliefs[i]) for i in walked], largest=1.0),
        same=estimate([_mean(a.ids == b.ids for a, b in runs) for runs in pairs], largest=1.0),
    )


def _mean(values: Iterator[float]) -> float:
    found = [float(value) for value in values]
    return sum(found) / len(found)
