"""A job that is told to stop, at each of the places where it checks for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from quant.errors import OutputError
from quant.files.disk import Disk
from quant.files.source import SourceFile, SourceStoppedError
from quant.jobs.events import BytesDone, FileChecked, JobFinished, JobStarted, JobStopped, ShardStarted
from quant.jobs.job import Job
from quant.jobs.output import OutputDirectory
from quant.jobs.run import run
from quant.names import JOB_FILE, MANIFEST_FILE, NOTE, SCRATCH, discarded_directory, partial_directory
from tests.checkpoints.quantized import SHARDS, make_job
from tests.checkpoints.weights import write_small_weights


@pytest.fixture
def job(tmp_path: Path) -> Job:
    source = write_small_weights(tmp_path / "model")
    return make_job(source, tmp_path / "out", files={"config.json": (source / "config.json").read_bytes})


def when(events: list[object], kind: type) -> Callable[[], bool]:
    """Whether an event of that kind has been seen."""
    return lambda: any(isinstance(event, kind) for event in events)


def run_until(job: Job, kind: type) -> list[object]:
    """Run a job and stop it at the first event of a kind."""
    events: list[object] = []
    for event in run(job, cancelled=when(events, kind)):
        events.append(event)
    return events


def test_while_a_shard_is_written(job: Job) -> None:
    events = run_until(job, BytesDone)
    assert [type(event) for event in events] == [JobStarted, ShardStarted, BytesDone, JobStopped]
    assert events[-1] == JobStopped(finished=0)


def test_while_the_result_is_checked(job: Job) -> None:
    events = run_until(job, FileChecked)
    assert events[-1] == JobStopped(finished=2)
    assert sum(isinstance(event, FileChecked) for event in events) == 1
    assert not job.output.exists()
    again = list(run(job))
    assert not [event for event in again if isinstance(event, ShardStarted)]
    assert isinstance(again[-1], JobFinished)


def test_while_what_an_earlier_run_had_not_checked_to_the_end_is_checked(job: Job) -> None:
    run_until(job, FileChecked)
    shard = partial_directory(job.output) / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    events = run_until(job, FileChecked)
    assert [type(event) for event in events] == [FileChecked, JobStopped]
    again = list(run(job))
    assert [event.shard for event in again if isinstance(event, ShardStarted)] == [shard.name]
    assert isinstance(again[-1], JobFinished)


@pytest.mark.parametrize("knows_job", [True, False])
def test_a_manifest_that_broke_before_the_output_was_in_its_place(job: Job, knows_job: bool) -> None:
    """Shards are kept if a job's notes exist; otherwise nothing tells what they were made from."""
    run_until(job, FileChecked)
    directory = partial_directory(job.output)
    (directory / MANIFEST_FILE).write_bytes(b"{")
    if not knows_job:
        (directory / JOB_FILE).unlink()
    OutputDirectory(job, Disk()).require_possible()
    assert len(OutputDirectory(job, Disk()).finished()) == (2 if knows_job else 0)
    again = list(run(job))
    assert len([event for event in again if isinstance(event, ShardStarted)]) == (0 if knows_job else 2)
    assert isinstance(again[-1], JobFinished) and not directory.exists()


def test_another_job_is_refused_before_anything_is_fetched_where_an_output_awaits_its_place(job: Job) -> None:
    run_until(job, FileChecked)
    with pytest.raises(OutputError, match="revision"):
        OutputDirectory(replace(job, revision="b"), Disk()).require_possible()
    OutputDirectory(replace(job, revision="b", force=True), Disk()).require_possible()


def test_what_another_job_wrote_in_full_is_not_finished_for_this_one(job: Job) -> None:
    """Its shards may have the same names, and what has to be fetched and written is planned from what is finished."""
    run_until(job, FileChecked)
    other = replace(job, revision="b", force=True)
    assert OutputDirectory(job, Disk()).finished() == {shard.file for shard in job.plan.shards}
    assert OutputDirectory(other, Disk()).finished() == frozenset()
    garbage = discarded_directory(job.output)
    for same in (job, replace(job, force=True)):
        assert OutputDirectory(same, Disk()).dropped() == (garbage,)
    assert OutputDirectory(other, Disk()).dropped() == (garbage, partial_directory(job.output))
    (partial_directory(job.output) / job.plan.shards[0].file).unlink()
    assert OutputDirectory(job, Disk()).finished() == {job.plan.shards[1].file}
    assert isinstance(list(run(other))[-1], JobFinished)


def test_what_only_lacks_its_name_is_finished(job: Job) -> None:
    """A stop just before the rename leaves neither notes nor `job.json`: the plan may not ask for a second download."""
    run_until(job, FileChecked)
    directory = partial_directory(job.output)
    for shard in job.plan.shards:
        (directory / (shard.file + NOTE)).unlink()
    (directory / JOB_FILE).unlink()
    for same in (job, replace(job, force=True)):
        assert OutputDirectory(same, Disk()).finished() == {shard.file for shard in job.plan.shards}
        assert OutputDirectory(same, Disk()).dropped() == (discarded_directory(job.output),)


def test_while_a_source_file_is_waited_for(job: Job) -> None:
    opened = []

    @contextmanager
    def one_file_and_no_more(file: SourceFile) -> Iterator[Path]:
        opened.append(file.name)
        if len(opened) > 1:
            raise SourceStoppedError
        with job.open_source(file) as path:
            yield path

    events = list(run(replace(job, open_source=one_file_and_no_more)))
    assert events[-1] == JobStopped(finished=1)
    assert len(opened) == 2
    again = list(run(job))
    assert sum(isinstance(event, ShardStarted) for event in again) == 1


def test_while_a_small_file_is_waited_for(job: Job) -> None:
    def stopped() -> bytes:
        raise SourceStoppedError

    events = list(run(replace(job, files={"tokenizer.json": stopped})))
    assert events == [JobStopped(finished=0)]
    assert isinstance(list(run(job))[-1], JobFinished)


def test_what_is_finished_can_be_told_without_touching_anything(job: Job, tmp_path: Path) -> None:
    def finished() -> frozenset[str]:
        before = sorted(tmp_path.rglob("*"))
        found = OutputDirectory(job, Disk()).finished()
        assert sorted(tmp_path.rglob("*")) == before
        return found

    assert finished() == frozenset()
    run_until(job, ShardStarted)
    assert finished() == frozenset()
    events: list[object] = []
    for event in run(job, cancelled=lambda: sum(isinstance(event, ShardStarted) for event in events) == 2):
        events.append(event)
    assert finished() == {SHARDS[0]}
    assert OutputDirectory(replace(job, model="other"), Disk()).finished() == frozenset()
    run_until(job, FileChecked)
    assert finished() == {shard.file for shard in job.plan.shards}


def test_what_was_fetched_for_the_job_is_not_part_of_the_output(job: Job, tmp_path: Path) -> None:
    scratch = partial_directory(job.output) / SCRATCH

    @contextmanager
    def fetched(file: SourceFile) -> Iterator[Path]:
        with job.open_source(file) as path:
            scratch.mkdir(exist_ok=True)
            (scratch / file.name).write_bytes(path.read_bytes())
            yield scratch / file.name

    list(run(replace(job, open_source=fetched)))
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}
    assert not (job.output / SCRATCH).exists()
    assert not discarded_directory(job.output).exists()
