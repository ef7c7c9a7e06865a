"""Runs a quantization job, from the first byte to the renamed directory.

    source files ─► shards and their notes ─► other files ─► index ─► manifest ─► verify ─► rename ─► NAME/

Knows the order of steps; knows nothing about number formats or progress bars. After a stop at any point, the same job
resumes at the first unfinished shard, and its output is the same bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress

from quant.errors import DamagedError
from quant.files.disk import Disk, write_atomically
from quant.files.manifest import ENCODING, FileEntry, Manifest
from quant.files.source import INDEX_FILE, SourceStoppedError
from quant.jobs.events import JobEvent, JobFinished, JobStarted, JobStopped, OutputWritten, ShardStarted, ShardWritten
from quant.jobs.job import Job
from quant.jobs.output import OutputDirectory
from quant.jobs.pool import slice_pool
from quant.jobs.shard import make_shard
from quant.jobs.verify import AGAIN, verify
from quant.names import MANIFEST_FILE


def run(
    job: Job,
    *,
    disk: Disk | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[JobEvent]:
    """Carry out a job.

    Args:
        job: what to do.
        disk: what to write to; the real disk by default.
        cancelled: called between slices and between files; once it returns True, the job ends with `JobStopped`.
        clock: seconds, for the rate.

    Raises:
        OutputError: the output already exists, or something is in its way.
        SourceError: a weight file is missing, damaged, or holds values that are not finite.
        SpaceError: the disk is full.
        DamagedError: what was written does not verify.
    """
    disk = disk or Disk()
    output = OutputDirectory(job, disk)
    shards = job.plan.shards
    for checked in output.prepare():
        yield checked
        if cancelled():
            yield JobStopped(finished=len(output.finished()))
            return
    try:
        files = {name: content() if callable(content) else content for name, content in job.files.items()}
    except SourceStoppedError:
        yield JobStopped(finished=len(output.notes))
        return
    job.inspect(files)
    source_bytes = sum(shard.source.nbytes for shard in shards if shard.file not in output.notes)
    yield JobStarted(source_bytes=source_bytes)
    seconds = yield from _make_shards(job, output, disk=disk, cancelled=cancelled, clock=clock)
    if len(output.notes) < len(shards):
        yield JobStopped(finished=len(output.notes))
        return
    _finish(job, files, output, disk)
    yield OutputWritten(directory=str(output.directory))
    for checked in verify(output.directory):
        yield checked
        if checked.problem is not None:
            raise DamagedError(checked.problem, AGAIN)
        if cancelled():
            yield JobStopped(finished=len(shards))
            return
    output.publish()
    yield JobFinished(nbytes=sum(shard.nbytes for shard in shards), source_bytes=source_bytes, seconds=seconds)


def _make_shards(
    job: Job, output: OutputDirectory, *, disk: Disk, cancelled: Callable[[], bool], clock: Callable[[], float]
) -> Generator[JobEvent, None, float]:
    """Make the missing shards one by one, up to the one during which the job is stopped.

    Returns:
        Seconds, without those spent waiting for source files.
    """
    start, waited = clock(), 0.0
    with slice_pool(job.workers) as pool:
        for shard in job.plan.shards:
            if shard.file in output.notes:
                continue
            yield ShardStarted(shard=shard.file, source_bytes=shard.source.nbytes)
            asked = clock()
            with suppress(SourceStoppedError), job.open_source(shard.source) as path:
                waited += clock() - asked
                yield from make_shard(job, output, shard, path, disk=disk, pool=pool, cancelled=cancelled)
            if shard.file not in output.notes:
                break
            yield ShardWritten(source=shard.source.name, source_sha256=output.notes[shard.file].source.sha256)
    return clock() - start - waited


def _finish(job: Job, contents: Mapping[str, bytes], output: OutputDirectory, disk: Disk) -> None:
    """Write everything that is not a shard; the manifest last."""
    contents = {**contents, INDEX_FILE: _index(job)}
    for name, content in contents.items():
        write_atomically(disk, output.directory / name, content)
    notes = [output.notes[shard.file] for shard in job.plan.shards]
    manifest = Manifest(
        encoding=ENCODING,
        tool=job.tool,
        model=job.model,
        revision=job.revision,
        sources={note.shard.source: note.source for note in notes},
        recipe=job.plan.recipe,
        tensors={name: entry for note in notes for name, entry in note.tensors.items()},
        dropped=job.plan.dropped,
        shards={shard.file: note.shard for shard, note in zip(job.plan.shards, notes, strict=True)},
        files={name: FileEntry.of(content) for name, content in contents.items()},
    )
    write_atomically(disk, output.directory / MANIFEST_FILE, manifest.to_text().encode())


def _index(job: Job) -> bytes:
    weight_map = {name: shard.file for shard in job.plan.shards for name in shard.layout.starts}
    content = {"metadata": {"total_size": job.plan.stored_bytes}, "weight_map": weight_map}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
