"""`localdiff tune`: find the tiles with which this GPU takes its steps fastest, and keep them.

Knows the streams and which values are refused; knows nothing about tensors.
"""

from __future__ import annotations

from localdiff.commands.bench_step import require_between
from localdiff.commands.loading import IMPORTING
from localdiff.config import KEYS
from localdiff.errors import ArgumentError
from localdiff.machine.garbage import importing
from localdiff.paths import shown
from localdiff.ui.interrupt import interruptible
from localdiff.ui.output import Output
from localdiff.ui.status import progress_of, status_line
from quant import recipe_named
from quant.released import LAYERS, MAX_POSITIONS, MIN_LAYERS

TUNED_LAYERS = 12
"""Enough layers that a step takes the GPU longer than the host."""


def tune_tiles(
    output: Output,
    *,
    device: str,
    recipe: str,
    activations: str,
    context: int,
    layers: int,
    minutes: float,
    forgets: bool,
) -> int:
    """Search, and print what was found; returns 0.

    Args:
        device: the GPU, in the words of `--device`.
        recipe: how the random weights are stored.
        activations: what the weights are multiplied by, in the words of `--activations`.
        context: tokens in the cache before the canvas.
        layers: of random weights.
        minutes: no tile is begun after these.
        forgets: delete what is kept or unfinished, and time nothing.
    """
    recipe_named(recipe)
    KEYS["activations"].checked(activations)
    require_between("context", context, 1, MAX_POSITIONS)
    require_between("layers", layers, MIN_LAYERS, LAYERS)
    if not minutes > 0:
        raise ArgumentError("{minutes} must be > 0", minutes=minutes)
    output.stdout.require()
    with status_line(output) as status, interruptible(), importing():
        status.show(IMPORTING)
        from localdiff.bench.step.subject import random_subject
        from localdiff.bench.tuning.report_text import table
        from localdiff.bench.tuning.tune import forget, require_gpu, tune
        from localdiff.load import resolve_device

    if forgets:
        files = forget(device)
        what = f"Deleted {' and '.join(map(shown, files))}" if files else "No tiles were kept"
        output.stdout.write(f"{what}: the usual tiles are used.\n")
        return 0
    require_gpu(resolve_device(device))
    with status_line(output) as status:
        make = random_subject(
            recipe=recipe, layers=layers, context=context, device=device, dtype="auto", activations=activations
        )
        tuning = tune(make, context=context, seconds=60 * minutes, progress=progress_of(output, status))
    rounded = "" if activations == "auto" else f" with {activations} activations"
    model = f"random weights in {recipe}{rounded}, {layers} of {LAYERS} layers"
    output.stdout.write(table(tuning, f"{model}, {context:,} tokens of context", output.stdout.room))
    return 0
