"""A checkpoint quantized as `localdiff quantize` would leave it, and a look at what happened to it since."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from quant.files.source import read_source
from quant.jobs.events import JobEvent, JobFinished
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.jobs.verify import verify
from quant.planning.plan import make_plan
from quant.recipe import RECIPES, Recipe

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
"""The files that a job makes of those of `tests.checkpoints.weights`."""


def make_job(source: Path, output: Path, recipe: str | Recipe = "4bit", **changes: Any) -> Job:
    """The job that quantizes the weights of a directory; `changes` are fields of it."""
    job = Job(
        plan=make_plan(RECIPES[recipe] if isinstance(recipe, str) else recipe, read_source(source)),
        output=output,
        open_source=lambda file: nullcontext(source / file.name),
        tool="test",
    )
    return replace(job, **changes)


def finish(job: Job) -> list[JobEvent]:
    """The events of a job that runs to its end."""
    events = list(run(job))
    assert isinstance(events[-1], JobFinished)
    return events


def quantize(source: Path, output: Path, recipe: str | Recipe) -> Path:
    """Quantizes the weights of a directory and copies its other files, or repairs the output; returns `output`."""
    files = {path.name: path.read_bytes for path in source.iterdir() if "safetensors" not in path.name}
    damaged = damaged_files(output) if output.exists() else frozenset[str]()
    finish(make_job(source, output, recipe, files=files, damaged=damaged))
    return output


def tree(directory: Path) -> Mapping[str, bytes]:
    """Every file below a directory: its path relative to it → its content."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def damaged_files(output: Path) -> frozenset[str]:
    """The names of the damaged files of a finished output."""
    return frozenset(checked.file for checked in verify(output) if checked.problem is not None)
