"""`localdiff tune`: find the tiles with which this GPU takes its steps fastest, and keep them.

Knows the request and the streams; knows nothing about tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from localdiff.commands.bench_step import require_between
from localdiff.commands.loading import IMPORTING
from localdiff.config import KEYS
from localdiff.errors import ArgumentError
from localdiff.garbage import importing
from localdiff.paths import shown
from localdiff.ui.interrupt import interruptible
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine, status_line
from quant import DEFAULT_RECIPE, recipe_named
from quant.released import LAYERS, MAX_POSITIONS, MIN_LAYERS

CONTEXT, MINUTES = 1024, 20.0
TUNED_LAYERS = 12
"""Enough layers that a step takes the GPU longer than the host."""
PAUSE = 30.0
"""Seconds between lines of progress, where stderr is not a terminal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneRequest:
    """What the command line asks for.

    Attributes:
        device: the GPU, in the words of `--device`.
        recipe: how the random weights are stored.
        activations: what the weights are multiplied by, in the words of `--activations`.
        context: tokens in the cache before the canvas.
        layers: of random weights.
        minutes: no tile is begun after these.
        forget: delete what is kept or unfinished, and time nothing.
    """

    device: str = "auto"
    recipe: str = DEFAULT_RECIPE
    activations: str = "auto"
    context: int = CONTEXT
    layers: int = TUNED_LAYERS
    minutes: float = MINUTES
    forget: bool = False

    def __post_init__(self) -> None:
        recipe_named(self.recipe)
        KEYS["activations"].checked(self.activations)
        require_between("context", self.context, 1, MAX_POSITIONS)
        require_between("layers", self.layers, MIN_LAYERS, LAYERS)
        if not self.minutes > 0:
            raise ArgumentError("{minutes} must be > 0", minutes=self.minutes)


def tune_tiles(request: TuneRequest, output: Output) -> int:
    """Search, and print what was found; returns 0."""
    output.stdout.require()
    with status_line(output) as status, interruptible(), importing():
        status.show(IMPORTING)
        from localdiff.bench.step.subject import random_subject
        from localdiff.bench.tuning.report_text import table
        from localdiff.bench.tuning.tune import forget, require_gpu, tune
        from localdiff.load import resolve_device

    if request.forget:
        files = forget(request.device)
        what = f"Deleted {' and '.join(map(shown, files))}" if files else "No tiles were kept"
        output.stdout.write(f"{what}: the usual tiles are used.\n")
        return 0
    require_gpu(resolve_device(request.device))
    with status_line(output) as status:
        make = random_subject(
            recipe=request.recipe,
            layers=request.layers,
            context=request.context,
            device=request.device,
            dtype="auto",
            activations=request.activations,
        )
        tuning = tune(make, context=request.context, seconds=60 * request.minutes, progress=_progress(output, status))
    rounded = "" if request.activations == "auto" else f" with {request.activations} activations"
    model = f"random weights in {request.recipe}{rounded}, {request.layers} of {LAYERS} layers"
    output.stdout.write(table(tuning, f"{model}, {request.context:,} tokens of context", output.stdout.room))
    return 0


def _progress(output: Output, status: StatusLine) -> Callable[[str], None]:
    """Shows progress in the status line, or in a line now and then where it cannot be rewritten, as in a log."""
    if output.quiet or output.stderr.moving:
        return status.show
    told_at = float("-inf")

    def tell(text: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= PAUSE:
            told_at = time.monotonic()
            status.above(text)

    return tell
