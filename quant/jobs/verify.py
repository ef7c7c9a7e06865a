"""Verifies a quantized directory against its manifest.

Knows what makes a directory sound (`docs/format.md`); repairs nothing. Every byte of every listed file is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from quant.codecs import CODECS
from quant.codecs.codec import SOURCE_DTYPES
from quant.dtypes import HEADER_DTYPES
from quant.errors import SourceError
from quant.files.manifest import FileEntry, Manifest, ShardEntry, read_manifest
from quant.files.reader import SourceReader
from quant.files.source import HeaderEntry, StoredTensor, described_file
from quant.hashing import file_sha256
from quant.jobs.events import FileChecked

AGAIN = "run the `localdiff quantize` command that made it again: from the same source, only what is damaged is rebuilt"
_WORST_COUNT = 5
"""Number of tensors that `worst_tensors` names."""


def verify(directory: Path) -> Iterator[FileChecked]:
    """Check a directory, one file at a time.

    Yields:
        One event per file, damaged or not, shards first.

    Raises:
        DamagedError: the manifest is missing or damaged, so that nothing can be checked.
    """
    manifest = read_manifest(directory)
    for name, shard in manifest.shards.items():
        yield _checked(directory / name, shard.nbytes, partial(_shard_problem, manifest, shard))
    for name, file in manifest.files.items():
        yield _checked(directory / name, file.nbytes, partial(_file_problem, file))


def worst_tensors(manifest: Manifest) -> tuple[tuple[str, str, float], ...]:
    """Name, scheme and error of the tensors whose errors are the largest relative to the limit of their codec."""
    quantized = {name: tensor for name, tensor in manifest.tensors.items() if tensor.scheme in CODECS}
    errors = [(name, tensor.scheme, tensor.error) for name, tensor in quantized.items()]
    errors.sort(key=lambda entry: (-entry[2] / CODECS[entry[1]].error_limit, entry[0]))
    return tuple(errors[:_WORST_COUNT])


def _checked(path: Path, nbytes: int, find_problem: Callable[[Path], str | None]) -> FileChecked:
    name, is_barred = path.name, False
    try:
        if not path.is_file():
            problem: str | None = f"`{name}` is missing"
        elif path.stat().st_size != nbytes:
            problem = f"`{name}` has {path.stat().st_size} bytes instead of {nbytes}"
        else:
            problem = find_problem(path)
    except OSError as error:
        problem, is_barred = f"`{name}` cannot be read: {error.strerror}", isinstance(error, PermissionError)
    return FileChecked(file=name, nbytes=nbytes, problem=problem, is_barred=is_barred)


def _file_problem(entry: FileEntry, path: Path) -> str | None:
    if file_sha256(path) != entry.sha256:
        return f"`{path.name}` does not match its manifest (SHA-256 differs)"
    return None


def _shard_problem(manifest: Manifest, entry: ShardEntry, path: Path) -> str | None:
    name = path.name
    members = {tensor: stored for tensor, stored in manifest.tensors.items() if stored.shard == name}
    try:
        expected = {part for tensor, stored in members.items() for part in stored.parts(tensor)}
    except ValueError as error:
        return f"`{name}` cannot hold what its manifest lists ({error})"
    try:
        file = described_file(path)
        held = {HeaderEntry(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in file.tensors}
        if held != expected:
            return f"`{name}` does not hold the tensors that its manifest lists"
        with SourceReader(file, path) as reader:
            not_finite = [tensor.name for tensor in file.tensors if not _is_finite(reader, tensor)]
            if reader.sha256() != entry.sha256:
                return f"`{name}` does not match its manifest (SHA-256 differs)"
    except SourceError as error:
        return error.message
    if not_finite:
        return f"`{name}` holds values that are not finite, in `{not_finite[0]}`"
    for tensor, stored in members.items():
        limit = CODECS[stored.scheme].error_limit if stored.scheme in CODECS else 0.0
        if not 0 <= stored.error <= limit:
            return (
                f"`{tensor}` has a relative error of {stored.error:.4g}, over the limit {limit:.4g} of {stored.scheme}"
            )
    return None


def _is_finite(reader: SourceReader, tensor: StoredTensor) -> bool:
    if HEADER_DTYPES[tensor.dtype] not in SOURCE_DTYPES:
        return True
    return all(bool(torch.isfinite(rows).all()) for rows in reader.slices(tensor))
