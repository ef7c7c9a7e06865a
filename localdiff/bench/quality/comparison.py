"""Comparison of two models on the same prompts and the same noise, group by group.

One model is loaded at a time, so that models that do not fit the device together can be compared: answers and
predictions of the first one are kept in host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import fmean
from typing import TypeAlias

from localdiff.bench.quality.answers import Answer, ask
from localdiff.bench.quality.canvases import Canvas, Predictions, agreement, divergence, predict
from localdiff.bench.quality.questions import Question
from localdiff.demo.estimate import Estimate, estimate
from localdiff.engine import Engine
from localdiff.errors import ContextError, WeightsError
from localdiff.identity import ModelIdentity
from localdiff.load import release_cached_memory
from localdiff.model.config import ModelConfig
from localdiff.options import GenerateOptions

WALKS = 20
"""Questions per group whose canvases are walked; their distributions are kept in host memory."""

ALL = "all"

_TOO_LONG = "leave it out, or raise `--context` where the model takes more"

Progress: TypeAlias = Callable[[str], None]
"""Called with a line about progress."""

Found: TypeAlias = tuple[list[Answer], tuple[Canvas, ...], Predictions | None]
Runner: TypeAlias = Callable[[Engine, Sequence[Callable[[Engine], Found]]], list[Found]]
"""Runs generating tasks on a loaded engine; returns what they found in the order of the tasks."""


def one_by_one(engine: Engine, tasks: Sequence[Callable[[Engine], Found]]) -> list[Found]:
    """The plain `Runner`."""
    return [task(engine) for task in tasks]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What was observed of one model.

    Attributes:
        identity: which model.
        config: its configuration.
        hardware: what it ran on.
        answers: one list per question, one answer per seed.
        predictions: question → those on the first model's canvases.
        canvases: question → those canvases.
    """

    identity: ModelIdentity
    config: ModelConfig
    hardware: str
    answers: list[list[Answer]]
    predictions: dict[int, Predictions]
    canvases: dict[int, tuple[Canvas, ...]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One group of questions. Differences are the second model's value minus the first one's, paired by question.

    Attributes:
        score, score_change: share of right answers of the first model, and the difference; None if they are not judged.
        steps, steps_change: denoise steps per block of the first model, and the difference relative to them.
        divergence: nats per position, on fixed canvases.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """What two models did with one question.

    Attributes:
        first, second: their answers, one per seed.
        divergence, agreement: on the first model's canvases; None where those were not walked.
    """

    first: Sequence[Answer]
    second: Sequence[Answer]
    divergence: float | None
    agreement: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All measurements of two models."""

    first: ModelIdentity
    second: ModelIdentity
    hardware: str
    seeds: int
    pairs: list[Pair]
    rows: list[Row]


def compare(
    first: Callable[[], Engine],
    others: Sequence[Callable[[], Engine]],
    questions: Sequence[Question],
    options: Sequence[GenerateOptions],
    progress: Progress,
    *,
    walks: int = WALKS,
    runner: Runner = one_by_one,
) -> Iterator[Comparison]:
    """Asks a model everything, then compares each of the others with it.

    Args:
        options: settings of the runs of each question, which differ in their seed.
        walks: questions of a group whose canvases are compared step by step.
        runner: answers the questions; where it batches them, the last bits depend on how.

    Raises:
        ContextError: a question leaves a model no room for an answer; that model has then answered no question.
        WeightsError: a model has other token ids or canvases than the first.
    """
    walked = frozenset(_walked_questions(questions, walks))
    observe = partial(_observe, questions=questions, options=options, progress=progress, walked=walked, runner=runner)
    reference = observe("first", first, reference=None)
    for number, load in enumerate(others, 2):
        which = "second" if len(others) == 1 else f"{number}."
        other = observe(which, load, reference=reference)
        pairs = [_pair(index, reference, other) for index in range(len(questions))]
        yield Comparison(
            first=reference.identity,
            second=other.identity,
            hardware=other.hardware,
            seeds=len(options),
            pairs=pairs,
            rows=tabulate([question.group for question in questions], pairs),
        )


def tabulate(groups: Sequence[str], pairs: Sequence[Pair]) -> list[Row]:
    """A row per group, and one for all where there are several."""
    members = {group: [pair for its, pair in zip(groups, pairs, strict=True) if its == group] for group in groups}
    if len(members) > 1:
        members[ALL] = list(pairs)
    return [_row(group, its) for group, its in members.items()]


def _observe(
    which: str,
    load: Callable[[], Engine],
    *,
    questions: Sequence[Question],
    options: Sequence[GenerateOptions],
    progress: Progress,
    reference: Observed | None,
    walked: Collection[int],
    runner: Runner,
) -> Observed:
    """One model's answers, and its predictions on the reference's canvases, or on its own if it is the reference."""
    progress(f"loading the {which} model")
    engine = load()
    if reference is not None:
        _require_comparable(reference, engine)
    _require_room(engine, questions, options[0])
    number = count(1)

    def work(index: int, engine: Engine) -> Found:
        question = questions[index]
        progress(f"{which} model: question {next(number):,} of {len(questions):,} ({question.group})")
        runs = [ask(engine, question, each) for each in options]
        answers = [answer for answer, _ in runs]
        if index not in walked:
            return answers, (), None
        canvases = runs[0][1] if reference is None else reference.canvases[index]
        return answers, canvases, predict(engine, question, options[0], canvases)

    results = runner(engine, [partial(work, index) for index in range(len(questions))])
    observed = Observed(
        identity=engine.identity,
        config=engine.model.config,
        hardware=engine.hardware,
        answers=[answers for answers, _, _ in results],
        canvases={index: results[index][1] for index in walked},
        predictions={index: result[2] for index, result in enumerate(results) if result[2] is not None},
    )
    del engine
    release_cached_memory()
    return observed


def _require_comparable(reference: Observed, engine: Engine) -> None:
    """Refuses another vocabulary or canvas: predictions are compared id by id and position by position."""
    one, other = reference.config, engine.model.config
    if (one.vocab_size, one.canvas_length) != (other.vocab_size, other.canvas_length):
        raise WeightsError(
            f"`{engine.identity.model}` has {other.vocab_size:,} token ids and canvases of {other.canvas_length}, and "
            f"`{reference.identity.model}` has {one.vocab_size:,} and {one.canvas_length}, so they cannot be compared",
            "name models of the same vocabulary and canvas, such as two recipes of the same weights",
        )


def _require_room(engine: Engine, questions: Sequence[Question], options: GenerateOptions) -> None:
    """Refuses prompts that are too long before any is answered, so that no answers are lost to a later prompt."""
    most = engine.context_size(options)
    for number, question in enumerate(questions, 1):
        which = f"question {number:,} of {len(questions):,} ({question.group})"
        try:
            tokens = len(engine.prompt_ids(question.prompt, options))
        except ContextError as error:
            raise ContextError(f"{which}: {error.message}", _TOO_LONG) from error
        if tokens >= most:
            raise ContextError(
                f"{which} has {tokens:,} tokens and the context holds {most:,}, the answer included", _TOO_LONG
            )


def _walked_questions(questions: Sequence[Question], count: int) -> Iterator[int]:
    """The first `count` questions of each group."""
    counts: dict[str, int] = {}
    for index, question in enumerate(questions):
        counts[question.group] = counts.get(question.group, 0) + 1
        if counts[question.group] <= count:
            yield index


def _pair(index: int, first: Observed, second: Observed) -> Pair:
    walked = index in first.predictions
    return Pair(
        first=first.answers[index],
        second=second.answers[index],
        divergence=divergence(first.predictions[index], second.predictions[index]) if walked else None,
        agreement=agreement(first.predictions[index], second.predictions[index]) if walked else None,
    )


def _row(group: str, pairs: Sequence[Pair]) -> Row:
    runs = [list(zip(pair.first, pair.second, strict=True)) for pair in pairs]

    def mean(value: Callable[[Answer, Answer], float], largest: float | None = None) -> Estimate:
        """Over the questions, each with the mean of its seeds."""
        return estimate([fmean(value(a, b) for a, b in each) for each in runs], largest=largest)

    judged = all(answer.right is not None for each in runs for both in each for answer in both)
    steps = mean(lambda a, _: a.steps_a_block)
    return Row(
        group=group,
        questions=len(pairs),
        runs=sum(map(len, runs)),
        score=mean(lambda a, _: bool(a.right), 1.0) if judged else None,
        score_change=mean(lambda a, b: bool(b.right) - bool(a.right), 1.0) if judged else None,
        steps=steps,
        steps_change=mean(lambda a, b: b.steps_a_block - a.steps_a_block).scaled(1 / steps.mean),
        divergence=estimate([pair.divergence for pair in pairs if pair.divergence is not None]),
        agreement=estimate([pair.agreement for pair in pairs if pair.agreement is not None], largest=1.0),
        same=mean(lambda a, b: a.ids == b.ids, 1.0),
    )
