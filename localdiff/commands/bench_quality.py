"""`localdiff bench quality`: what a change of the weights does to answers.

Knows the order of things and where the result goes; measures nothing. What is wrong with the request is found before a
model is loaded, and torch is imported no earlier.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localdiff import hub
from localdiff.errors import UsageError
from localdiff.options import GenerateOptions
from localdiff.ui.log import logging_to
from localdiff.ui.output import Output, printable
from localdiff.ui.status import StatusLine


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityRequest:
    """What the command line asks for.

    Attributes:
        models: the first model, which the other is held against, and the second one.
        skills: skills of the demo model to ask about; none for all.
        count: most questions a skill.
        prompts: file with a prompt a line, in place of the skills.
        seeds: runs of each question.
        options: settings of a run; its seed is the first one.
        device, dtype, max_memory, offline: as of a run.
        json: an object in place of the table.
    """

    models: tuple[str, str]
    skills: tuple[str, ...] = ()
    count: int = 100
    prompts: Path | None = None
    seeds: int = 5
    options: GenerateOptions = GenerateOptions(seed=0)
    device: str = "auto"
    dtype: str = "auto"
    max_memory: int | None = None
    offline: bool = False
    json: bool = False


def bench_quality(request: QualityRequest, output: Output) -> int:
    """Compare two models and print what came of it.

    Raises:
        LocaldiffError: everything that a user can do something about.
    """
    for name in ("count", "seeds"):
        if getattr(request, name) < 1:
            raise UsageError(f"{name}={getattr(request, name)} must be >= 1")
    if request.prompts is not None and request.skills:
        raise UsageError("`--prompts` and `--skill` exclude each other", "leave out one of the two")
    status = StatusLine(output.stderr, shown=not output.quiet)
    with logging_to(status, output):
        try:
            text = _measure(request, output, status)
        finally:
            status.clear()
    output.stdout.write(text + "\n")
    return 0


def _measure(request: QualityRequest, output: Output, status: StatusLine) -> str:
    from localdiff.bench.quality.comparison import compare
    from localdiff.bench.quality.questions import file_questions, skill_questions
    from localdiff.bench.quality.report import table, to_object
    from localdiff.engine import Engine

    questions = (
        skill_questions(request.skills, request.count)
        if request.prompts is None
        else file_questions(request.prompts)[: request.count]
    )
    hub.show_downloads(output.stderr.terminal and not output.quiet)

    def load(model: str) -> Engine:
        return Engine.load(
            model,
            device=request.device,
            dtype=request.dtype,
            offline=request.offline,
            context=request.options.context,
            max_memory=request.max_memory,
        )

    comparison = compare(
        [lambda name=name: load(name) for name in request.models],
        questions,
        _by_seed(request),
        lambda words: status.show(printable(words)),
    )
    if request.json:
        return json.dumps(to_object(comparison), allow_nan=False)
    first, second = comparison.first, comparison.second
    head = (
        f"{printable(second.model)} ({second.recipe}) against {printable(first.model)} ({first.recipe}), "
        f"{second.dtype} on {second.device}: {comparison.hardware}; {request.seeds} seeds a question"
    )
    return f"{head}\n\n{table(comparison)}"


def _by_seed(request: QualityRequest) -> Sequence[GenerateOptions]:
    first = request.options.seed or 0
    return [replace(request.options, seed=first + number) for number in range(request.seeds)]
