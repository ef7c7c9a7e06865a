"""A checkpoint through a quantization job, as `localdiff quantize` would leave it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from quant.files.source import read_source
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.planning.plan import make_plan
from quant.recipe import RECIPES, Recipe


def quantize(source: Path, output: Path, recipe: str | Recipe) -> Path:
    """Quantizes the weights of a directory, copies its other files, and returns `output`."""
    job = Job(
        plan=make_plan(RECIPES[recipe] if isinstance(recipe, str) else recipe, read_source(source)),
        output=output,
        open_source=lambda file: nullcontext(source / file.name),
        tool="test",
        files={path.name: path for path in source.iterdir() if "safetensors" not in path.name},
    )
    list(run(job))
    return output
