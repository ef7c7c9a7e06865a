"""A quantization job from the first byte to the renamed directory.

    source file ─► slices ─► [encode, decode, measure] × workers ─► shard.partial ─► fsync, rename ─► note
                                                                                                      │ all shards
                 NAME/ ◄─ rename ◄─ verify ◄─ manifest ◄─ index ◄─ other files ◄──────────────────────┘

Knows the order of things; knows nothing about number formats or progress bars. Stopped anywhere, the same job goes on
at the first unfinished shard, and ends in the same bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .codec import SOURCE_DTYPES, Encoded, NotFiniteError, squared_error
from .codecs import CODECS
from .disk import Disk, put
from .errors import SourceError
from .events import (
    BytesDone,
    JobEvent,
    JobFinished,
    JobStarted,
    JobStopped,
    ShardStarted,
    ShardWritten,
    TensorDone,
)
from .job import Job, Note, Output
from .manifest import MANIFEST_FILE, FileEntry, Manifest, ShardEntry, TensorEntry, read_manifest
from .plan import PlannedShard, PlannedTensor, shard_layout
from .pool import SlicePool, slice_pool
from .slices import row_slices
from .source import INDEX_FILE, SourceFile, SourceReader
from .verify import require_sound, verify, worst_tensors
from .writer import ShardWriter, file_sha256

_DIGITS = 6


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
        disk: where to; the real one by default.
        cancelled: asked between slices; once it says yes, the job ends with `JobStopped`.
        clock: seconds, for the rate.

    Raises:
        OutputError: the output is there already, or something is in its way.
        SourceError: a weight file is missing, damaged, or holds values that are not finite.
        SpaceError: the disk is full.
        DamagedError: what was written does not verify.
    """
    disk = disk or Disk()
    output = Output(job, disk)
    yield from output.prepare()
    shards = job.plan.shards
    missing = [shard for shard in shards if shard.file not in output.notes]
    source_bytes = sum(shard.source.nbytes for shard in missing)
    yield JobStarted(shards=len(shards), finished=len(output.notes), source_bytes=source_bytes, workers=job.workers)
    started = clock()
    with slice_pool(job.workers) as pool:
        for number, shard in enumerate(shards, 1):
            if shard.file not in output.notes:
                yield ShardStarted(
                    shard=shard.file, source=shard.source.name, number=number, source_bytes=shard.source.nbytes
                )
                yield from _make_shard(job, output, shard, disk, pool, cancelled)
            if shard.file not in output.notes:
                yield JobStopped(finished=len(output.notes), shards=len(shards))
                return
            if shard in missing:
                yield ShardWritten(shard=shard.file, number=number, nbytes=shard.nbytes)
    seconds = clock() - started
    _finish(job, output, disk)
    for checked in verify(output.directory):
        yield checked
        require_sound(checked)
    output.publish()
    manifest = read_manifest(job.output)
    yield JobFinished(
        directory=str(job.output),
        nbytes=manifest.nbytes,
        source_bytes=source_bytes,
        seconds=seconds,
        worst=worst_tensors(manifest),
    )


def _make_shard(
    job: Job, output: Output, shard: PlannedShard, disk: Disk, pool: SlicePool, cancelled: Callable[[], bool]
) -> Iterator[JobEvent]:
    """Read a source file, write its shard and note it, unless the job is cancelled meanwhile."""
    tensors: dict[str, TensorEntry] = {}
    path = output.directory / shard.file
    promised = output.promised.get(shard.source.name)
    with (
        job.open_source(shard.source) as source,
        SourceReader(_promising(shard.source, promised), source) as reader,
        ShardWriter(disk, path, shard_layout(shard.tensors)) as writer,
    ):
        for tensor in shard.tensors:
            total = _Error()
            for rows in _rows(job, tensor, reader, writer, pool):
                total += rows.error
                yield BytesDone(name=tensor.name, source_bytes=rows.source_bytes)
                if cancelled():
                    return
            error = round(total.relative, _DIGITS) if tensor.fate in CODECS else 0.0
            tensors[tensor.name] = TensorEntry(
                fate=tensor.fate,
                shape=tensor.source.shape,
                dtype=tensor.source.dtype,
                shard=shard.file,
                error=error,
            )
            yield TensorDone(name=tensor.name, fate=tensor.fate, error=error)
        hashed = FileEntry(nbytes=shard.source.nbytes, sha256=reader.sha256())
        digest = writer.finish()
    entry = ShardEntry(nbytes=shard.nbytes, sha256=digest, source=shard.source.name)
    output.note(shard.file, Note(shard=entry, source=hashed, tensors=tensors))


@dataclass(slots=True)
class _Error:
    """A squared error and what it is relative to."""

    squared: float = 0.0
    norm: float = 0.0

    def __iadd__(self, other: _Error) -> _Error:
        self.squared += other.squared
        self.norm += other.norm
        return self

    @property
    def relative(self) -> float:
        return float((self.squared / self.norm) ** 0.5) if self.norm else 0.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a tensor that have been written."""

    error: _Error
    source_bytes: int


def _rows(
    job: Job, tensor: PlannedTensor, reader: SourceReader, writer: ShardWriter, pool: SlicePool
) -> Iterator[_Rows]:
    """Work off one tensor, a slice at a time."""
    stored, name = tensor.source, tensor.name
    read = (reader.rows(stored, part) for part in row_slices(stored.shape, stored.itemsize))
    if tensor.fate == "keep":
        element = 0
        for rows in read:
            if rows.dtype in SOURCE_DTYPES and not bool(torch.isfinite(rows).all()):
                raise _not_finite(tensor)
            writer.write(name, element, rows)
            element += rows.numel()
            yield _Rows(error=_Error(), source_bytes=rows.nbytes)
        return
    codes = scales = 0
    try:
        for encoded, error, source_bytes in pool.map(partial(_encode, tensor.fate, job.device), read):
            writer.write(f"{name}.codes", codes, encoded.codes)
            writer.write(f"{name}.scales", scales, encoded.scales)
            codes, scales = codes + encoded.codes.numel(), scales + encoded.scales.numel()
            yield _Rows(error=error, source_bytes=source_bytes)
    except NotFiniteError as error:
        raise _not_finite(tensor) from error


def _encode(codec_name: str, device: torch.device, rows: Tensor) -> tuple[Encoded, _Error, int]:
    codec = CODECS[codec_name]
    there = rows.to(device)
    encoded = codec.encode(there)
    error = _Error(*squared_error(codec.decode(encoded), there))
    return Encoded(codes=encoded.codes.cpu(), scales=encoded.scales.cpu()), error, rows.nbytes


def _not_finite(tensor: PlannedTensor) -> SourceError:
    return SourceError(
        f"`{tensor.name}` in `{tensor.source.file}` holds values that are not finite",
        "the weights are damaged: download them again",
    )


def _promising(file: SourceFile, sha256: str | None) -> SourceFile:
    """The same file with what is known of its hash."""
    if file.sha256 is not None or sha256 is None:
        return file
    return SourceFile(name=file.name, nbytes=file.nbytes, sha256=sha256, tensors=file.tensors)


def _finish(job: Job, output: Output, disk: Disk) -> None:
    """Write everything that is not a shard; the manifest last."""
    files: dict[str, FileEntry] = {}
    for name, content in {**job.files, INDEX_FILE: _index(job)}.items():
        data = content.read_bytes() if isinstance(content, Path) else content
        put(disk, output.directory / name, data)
        files[name] = FileEntry(nbytes=len(data), sha256=file_sha256(output.directory / name))
    notes = [output.notes[shard.file] for shard in job.plan.shards]
    manifest = Manifest(
        tool=job.tool,
        model=job.model,
        revision=job.revision,
        sources={note.shard.source: note.source for note in notes},
        recipe=job.plan.recipe,
        tensors={name: entry for note in notes for name, entry in note.tensors.items()},
        dropped=job.plan.dropped,
        shards={shard.file: note.shard for shard, note in zip(job.plan.shards, notes, strict=True)},
        files=files,
    )
    put(disk, output.directory / MANIFEST_FILE, manifest.to_text().encode())


def _index(job: Job) -> bytes:
    weight_map = {name: shard.file for shard in job.plan.shards for name in shard_layout(shard.tensors).starts}
    content: Mapping[str, object] = {
        "metadata": {"total_size": job.plan.stored_bytes},
        "weight_map": weight_map,
    }
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
