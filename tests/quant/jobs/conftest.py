"""Small weights, the job that quantizes them, and its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from quant.jobs.events import JobEvent, ShardWritten
from quant.jobs.job import Job
from quant.jobs.run import run
from tests.checkpoints.quantized import make_job as job_of
from tests.checkpoints.weights import write_small_weights


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_small_weights(tmp_path / "model")


def make_job(source: Path, output: Path, recipe: str = "4bit", **changes: object) -> Job:
    """A job with two small files; `changes` are fields of it."""
    files = {"config.json": (source / "config.json").read_bytes, "NOTICE": b"changed"}
    return job_of(source, output, recipe, **({"model": "org/model", "files": files} | changes))


def begin(job: Job, until: type[JobEvent] = ShardWritten) -> Path:
    """Stop a job at its first event of a kind; returns its unfinished directory."""
    next(event for event in run(job) if isinstance(event, until))
    return job.output.with_name(f"{job.output.name}.partial")


def count(events: list[JobEvent], kind: type[JobEvent]) -> int:
    """How many events are of this kind."""
    return sum(isinstance(event, kind) for event in events)
