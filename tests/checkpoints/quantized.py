"""A checkpoint through a quantization job, as `localdiff quantize` would leave it, and what became of it since."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from quant.files.source import read_source
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.jobs.verify import verify
from quant.planning.plan import make_plan
from quant.recipe import RECIPES, Recipe


def quantize(source: Path, output: Path, recipe: str | Recipe) -> Path:
    """Quantizes the weights of a directory, copies its other files, or repairs what is there; returns `output`."""
    job = Job(
        plan=make_plan(RECIPES[recipe] if isinstance(recipe, str) else recipe, read_source(source)),
        output=output,
        open_source=lambda file: nullcontext(source / file.name),
        tool="test",
        files={path.name: path.read_bytes for path in source.iterdir() if "safetensors" not in path.name},
        damaged=damaged_files(output) if output.exists() else frozenset(),
    )
    list(run(job))
    return output


def damaged_files(output: Path) -> frozenset[str]:
    """The names of the files of a finished output that are not sound."""
    return frozenset(checked.file for checked in verify(output) if checked.problem is not None)
