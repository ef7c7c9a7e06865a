"""One shard: a source file is read slice by slice, encoded, measured and written.

    source file ─► slices ─► [encode, decode, measure] × workers ─► shard.partial ─► fsync, rename ─► note

Knows how a tensor becomes its stored parts and how large its error is; knows nothing about the other shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from quant.codecs import CODECS
from quant.codecs.codec import SOURCE_DTYPES, Encoded, NotFiniteError, squared_error
from quant.errors import DamagedError, SourceError
from quant.files.disk import Disk
from quant.files.manifest import FileEntry, ShardEntry, TensorEntry
from quant.files.reader import SourceReader
from quant.files.writer import ShardWriter
from quant.jobs.events import BytesDone, JobEvent, TensorDone
from quant.jobs.job import Job
from quant.jobs.output import OutputDirectory
from quant.jobs.pool import SlicePool
from quant.jobs.unfinished import Note
from quant.planning.plan import PlannedShard, PlannedTensor

_DIGITS = 6


def make_shard(
    job: Job,
    output: OutputDirectory,
    shard: PlannedShard,
    path: Path,
    *,
    disk: Disk,
    pool: SlicePool,
    cancelled: Callable[[], bool],
) -> Iterator[JobEvent]:
    """Read the source file at `path`, write its shard and note it, unless the job is cancelled meanwhile.

    Raises:
        SourceError: the file is damaged, or holds values that are not finite, or far too large.
        DamagedError: a tensor's error is over its codec's limit.
        SpaceError: the disk is full.
    """
    tensors: dict[str, TensorEntry] = {}
    sha256 = shard.source.sha256 or output.source_hashes.get(shard.source.name)
    with (
        SourceReader(replace(shard.source, sha256=sha256), path) as reader,
        ShardWriter(disk, output.directory / shard.file, shard.layout) as writer,
    ):
        for tensor in shard.tensors:
            squared = norm = 0.0
            for error_of_rows, source_bytes in _stored_rows(job, tensor, reader, writer, pool):
                squared, norm = squared + error_of_rows[0], norm + error_of_rows[1]
                yield BytesDone(name=tensor.name, source_bytes=source_bytes)
                if cancelled():
                    return
            error = _relative_error(tensor, squared, norm)
            tensors[tensor.name] = TensorEntry(
                scheme=tensor.scheme,
                shape=tensor.source.shape,
                dtype=tensor.source.dtype,
                shard=shard.file,
                error=error,
            )
            yield TensorDone(error=error)
        hashed = FileEntry(nbytes=shard.source.nbytes, sha256=reader.sha256())
        digest = writer.finish()
    entry = ShardEntry(nbytes=shard.nbytes, sha256=digest, source=shard.source.name)
    output.note(shard.file, Note(shard=entry, source=hashed, tensors=tensors))


def _stored_rows(
    job: Job, tensor: PlannedTensor, reader: SourceReader, writer: ShardWriter, pool: SlicePool
) -> Iterator[tuple[tuple[float, float], int]]:
    """Stores one tensor, a slice at a time.

    Yields:
        For each slice, once it is written: its squared error and squared norm, and its bytes in the source.
    """
    name, slices = tensor.name, reader.slices(tensor.source)
    if tensor.scheme == "keep":
        element = 0
        for rows in slices:
            if rows.dtype in SOURCE_DTYPES and not bool(torch.isfinite(rows).all()):
                raise _unusable(tensor, "not finite")
            writer.write(name, element, rows)
            element += rows.numel()
            yield (0.0, 0.0), rows.nbytes
        return
    codes = scales = 0
    try:
        for encoded, error, source_bytes in pool.map(partial(_encode, tensor.scheme, job.device), slices):
            writer.write(f"{name}.codes", codes, encoded.codes)
            writer.write(f"{name}.scales", scales, encoded.scales)
            codes, scales = codes + encoded.codes.numel(), scales + encoded.scales.numel()
            yield error, source_bytes
    except NotFiniteError as error:
        raise _unusable(tensor, "not finite") from error


def _encode(codec_name: str, device: torch.device, rows: Tensor) -> tuple[Encoded, tuple[float, float], int]:
    codec = CODECS[codec_name]
    source = rows.to(device)
    encoded = codec.encode(source)
    error = squared_error(codec.decode(encoded), source)
    return Encoded(codes=encoded.codes.cpu(), scales=encoded.scales.cpu()), error, rows.nbytes


def _relative_error(tensor: PlannedTensor, squared: float, norm: float) -> float:
    """The relative RMSE of a stored tensor, as its manifest entry has it.

    Raises:
        SourceError: its values are so large that their squares overflow.
        DamagedError: the error is over the limit of the tensor's codec.
    """
    if tensor.scheme not in CODECS:
        return 0.0
    if not isfinite(squared + norm):  # a bit of an exponent has flipped
        raise _unusable(tensor, "far too large")
    error = round((squared / norm) ** 0.5, _DIGITS) if norm else 0.0
    limit = CODECS[tensor.scheme].error_limit
    if error > limit:
        raise DamagedError(
            f"`{tensor.name}` loses {error:.1%} as {tensor.scheme}, where {limit:.0%} is the limit",
            "these weights do not suit that format: recipe `int8` keeps more of them, `bf16` everything",
        )
    return error


def _unusable(tensor: PlannedTensor, what: str) -> SourceError:
    return SourceError(
        f"`{tensor.name}` in `{tensor.source.file}` holds values that are {what}",
        "the weights are damaged: download them again",
    )
