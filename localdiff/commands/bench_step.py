"""`localdiff bench step`: measure one denoise step and report the figures.

Knows the request, those of its errors that can be found before computing, and the streams; knows nothing about tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localdiff.commands.loading import IMPORTING, Loading
from localdiff.commands.model_choice import ModelChoice
from localdiff.download_plan import ConfirmDownload, confirm_silently
from localdiff.errors import ArgumentError, UsageError
from localdiff.machine.garbage import importing
from localdiff.quoting import printable, shell_word
from localdiff.ui.interrupt import interruptible
from localdiff.ui.output import Output
from localdiff.ui.status import progress_of, status_line
from quant import DEFAULT_RECIPE, recipe_named
from quant.released import LAYERS, MAX_POSITIONS, MIN_LAYERS

if TYPE_CHECKING:
    from localdiff.bench.step.report import Report

MAX_STEPS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRequest:
    """What the command line asks for.

    Attributes:
        choice: as for a run; no model means random weights.
        random_weights: whether random weights were asked for explicitly.
        recipe: how random weights are stored; None is the default recipe.
        context: tokens in the cache before the canvas.
        steps: denoise steps to time.
        layers: layers of random weights; None is all of them.
        json: print only the line of JSON.
    """

    choice: ModelChoice = ModelChoice()
    random_weights: bool = False
    recipe: str | None = None
    context: int = 1024
    steps: int = 16
    layers: int | None = None
    json: bool = False

    def __post_init__(self) -> None:
        require_between("context", self.context, 1, MAX_POSITIONS)
        require_between("steps", self.steps, 1, MAX_STEPS)
        if self.layers is not None:
            hint = (
                f"{MIN_LAYERS} is the smallest number with a layer of every kind, from which the others are estimated"
            )
            require_between("layers", self.layers, MIN_LAYERS, LAYERS, hint)
        if self.choice.model is None:
            if self.choice.revision is not None:
                raise UsageError("`--revision` needs a model, and none is named", "`-m` names one")
            recipe_named(self.recipe or DEFAULT_RECIPE)
            return
        if not self.choice.model:
            raise UsageError("`-m` is empty", "leave it out to measure random weights, or name a model as for run")
        clashes = {
            "--random-weights": self.random_weights,
            "--recipe": self.recipe is not None,
            "--layers": self.layers is not None,
        }
        for option, is_given in clashes.items():
            if is_given:
                raise UsageError(
                    f"`-m` and `{option}` exclude each other",
                    f"`{option}` is about random weights; leave out `-m` to measure those",
                )


def measure(
    request: StepRequest, progress: Callable[[str], None], confirm: ConfirmDownload = confirm_silently
) -> Report:
    """Measure a step; torch is not imported before this."""
    if request.choice.model is not None:
        request.choice.check_names()
    progress(IMPORTING)
    with interruptible(), importing():
        from localdiff.bench.step.run import run
        from localdiff.bench.step.subject import random_subject, real_subject

    choice = request.choice
    if choice.model is None:
        make = random_subject(
            recipe=request.recipe or DEFAULT_RECIPE,
            layers=request.layers or LAYERS,
            context=request.context,
            device=choice.device,
            dtype=choice.dtype,
            activations=choice.activations,
        )
    else:
        make = real_subject(
            model=choice.model,
            revision=choice.revision,
            offline=choice.offline,
            context=request.context,
            device=choice.device,
            dtype=choice.dtype,
            activations=choice.activations,
            confirm=confirm,
            progress=progress,
        )
    return run(context=request.context, steps=request.steps, make=make, progress=progress)


def bench_step(request: StepRequest, output: Output) -> int:
    """Measure a step and print a table, and then, except on a terminal, whose screen it would fill, a line of JSON."""
    output.stdout.require()
    with status_line(output) as status:
        confirm: ConfirmDownload = confirm_silently
        if request.choice.model is not None:
            confirm = Loading(status, request.choice.model, output, yes=request.choice.yes).confirm
        tell, last = progress_of(output, status), IMPORTING

        def progress(text: str) -> None:
            nonlocal last
            last = text
            tell(text)

        try:
            report = measure(request, progress, confirm)
        except KeyboardInterrupt:
            if last != IMPORTING and not output.quiet:  # otherwise a download was declined, or nothing has begun
                status.clear()
                output.stderr.say(printable(f"Stopped at: {last}. Figures come only at the end."))
            raise
    from localdiff.bench.step.report_text import json_line, table

    if not request.json:
        output.stdout.write(table(report, output.stdout.columns) + "\n")
    if request.json or not output.stdout.terminal:
        command = " ".join(shell_word(word) for word in ("localdiff", *sys.argv[1:]))
        output.stdout.write(json_line(report, command) + "\n")
    return 0


def require_between(name: str, value: int, minimum: int, maximum: int, hint: str | None = None) -> None:
    """Raises an `ArgumentError` unless the value of an argument is within its range."""
    if not minimum <= value <= maximum:
        raise ArgumentError(f"{{{name}}} must be from {minimum:,} to {maximum:,}", hint, **{name: value})
