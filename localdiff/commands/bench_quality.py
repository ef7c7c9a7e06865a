"""`localdiff bench quality`: how a change of the weights changes answers.

Knows the order of steps and where the result goes; measures nothing. Errors in the request are found before a model is
loaded, and torch is imported no earlier.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from localdiff.commands.loading import IMPORTING, Loading
from localdiff.commands.model_choice import ModelChoice
from localdiff.errors import ArgumentError, UsageError
from localdiff.options import GenerateOptions
from localdiff.quoting import printable
from localdiff.ui.interrupt import interruptible
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine, progress_of, status_line

if TYPE_CHECKING:
    from localdiff.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityRequest:
    """What the command line asks for.

    Attributes:
        models: the first model, and the models that are compared with it.
        skills: skills of the demo model to ask about; none for all.
        count: maximum number of questions per skill.
        prompts: file with one prompt per line, in place of the skills.
        seeds: runs of each question.
        options: settings of a run; its seed is the first one.
        choice: as for a run; its model is each of `models` in turn.
        json: print a line of JSON for each compared model in place of the tables.
    """

    models: tuple[str, ...]
    skills: tuple[str, ...]
    count: int
    prompts: Path | None
    seeds: int
    options: GenerateOptions
    choice: ModelChoice
    json: bool


def bench_quality(request: QualityRequest, output: Output) -> int:
    """Compare models with a first one, and print the results."""
    output.stdout.require()
    for name in ("count", "seeds"):
        if getattr(request, name) < 1:
            raise ArgumentError(f"{{{name}}} must be >= 1", **{name: getattr(request, name)})
    if request.prompts is not None and request.skills:
        raise UsageError("`--prompts` and `--skill` exclude each other", "leave out one of the two")
    if len(set(request.models)) < len(request.models):
        raise UsageError("a model cannot be compared with itself", "name each model once")
    for model in request.models:
        # A mistyped last name must not cost the answers of the first model.
        replace(request.choice, model=model).check_names()
    with status_line(output) as status:
        _measure(request, output, status)
    return 0


def _measure(request: QualityRequest, output: Output, status: StatusLine) -> None:
    status.show(IMPORTING)
    with interruptible():
        from localdiff.bench.quality.comparison import compare
        from localdiff.bench.quality.questions import file_questions, skill_questions
        from localdiff.bench.quality.report import table, to_object

    questions = (
        skill_questions(request.skills, request.count)
        if request.prompts is None
        else file_questions(request.prompts)[: request.count]
    )

    def load(model: str) -> Engine:
        choice = replace(request.choice, model=model)
        loading = Loading(status, model, output, yes=choice.yes)
        return choice.load(context_size=request.options.context_size, loading=loading)

    first, *others = (partial(load, model) for model in request.models)
    seed = request.options.seed or 0
    by_seed = [replace(request.options, seed=seed + number) for number in range(request.seeds)]
    tell = progress_of(output, status)
    comparisons = compare(first, others, questions, by_seed, lambda words: tell(printable(words)))
    for number, comparison in enumerate(comparisons):
        text = (
            json.dumps(to_object(comparison), allow_nan=False)
            if request.json
            else table(comparison, output.stdout.room)
        )
        status.clear()
        output.stdout.write(("\n" if number and not request.json else "") + text + "\n")
