"""One weight file, read in order, and its large tensors a slice at a time.

Knows bytes, hashes and headers, and that a row of a weight encodes on its own, so that fused experts and the embedding
can be cut anywhere between two rows. A fused expert tensor is 1 GB in bf16, so nothing here ever holds one whole.
Weights are read with plain reads into fresh buffers, never mapped, so that what was used does not pile up in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from io import FileIO
from math import prod
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from quant.dtypes import HEADER_DTYPES
from quant.errors import SourceError
from quant.files.source import HINT, SourceFile, StoredTensor, parse_header, read_start, unreadable

SLICE_BYTES = 4_000_000
"""Source bytes worked on at a time: half an expert's `gate_up_proj`."""
_READ_BYTES = 8_000_000


class SourceReader:
    """One weight file, read from front to back and hashed on the way.

    Args:
        file: what it should be.
        path: where it is.

    Raises:
        SourceError: the file is missing, or has another size or header.
    """

    def __init__(self, file: SourceFile, path: Path) -> None:
        self.file = file
        self._hash = hashlib.sha256()
        self._position = 0
        try:
            self._stream = FileIO(path)
        except OSError as error:
            raise unreadable(f"the weight file `{path}`", error) from error
        try:
            if path.stat().st_size != file.nbytes:
                raise SourceError(f"`{path}` has {path.stat().st_size} bytes instead of {file.nbytes}", HINT)
            start = read_start(file.name, lambda count: bytes(self._read(count)))
            if parse_header(file.name, start, file.nbytes) != file.tensors:  # they must lie where the plan saw them
                raise SourceError(f"`{file.name}` has changed since the plan was made", "run the same command again")
        except SourceError:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stream.close()

    def slices(self, tensor: StoredTensor) -> Iterator[Tensor]:
        """All rows of a tensor, in order and a slice at a time; raises as `rows`."""
        return (self.rows(tensor, part) for part in row_slices(tensor.shape, tensor.itemsize))

    def rows(self, tensor: StoredTensor, part: slice) -> Tensor:
        """Rows `[n, last]` of a tensor, all axes but its last flattened; positions must not decrease.

        Raises:
            SourceError: the file ends early, or cannot be read.
        """
        last = tensor.shape[-1] if tensor.shape else 1
        self._skip(tensor.start + part.start * last * tensor.itemsize)
        buffer = self._read((part.stop - part.start) * last * tensor.itemsize)
        if not buffer:  # an axis is empty
            return torch.empty(part.stop - part.start, last, dtype=HEADER_DTYPES[tensor.dtype])
        return torch.frombuffer(buffer, dtype=HEADER_DTYPES[tensor.dtype]).view(-1, last)

    def sha256(self) -> str:
        """Read on to the end, and return the hash of the whole file.

        Raises:
            SourceError: the hash is not the expected one.
        """
        self._skip(self.file.nbytes)
        digest = self._hash.hexdigest()
        if self.file.sha256 not in (None, digest):
            raise SourceError(f"`{self.file.name}` is damaged (its SHA-256 is not the published one)", HINT)
        return digest

    def _skip(self, position: int) -> None:
        if position < self._position:
            raise ValueError(f"{position=} lies before {self._position}")
        while self._position < position:
            self._read(min(_READ_BYTES, position - self._position))

    def _read(self, count: int) -> bytearray:
        buffer = bytearray(count)
        view, filled = memoryview(buffer), 0
        while filled < count:
            try:
                got = self._stream.readinto(view[filled:])
            except OSError as error:  # a disk that fails, or was unplugged
                raise SourceError(
                    f"`{self.file.name}` cannot be read ({error.strerror})", "look at the disk and its connection"
                ) from error
            if not got:
                raise SourceError(f"`{self.file.name}` ends early", HINT)
            filled += got
        self._hash.update(buffer)
        self._position += count
        return buffer


def row_slices(shape: Sequence[int], itemsize: int, limit: int = SLICE_BYTES) -> Iterator[slice]:
    """Slices of a tensor's rows (all axes but the last, flattened): at most `limit` bytes each, but at least one row.

    They depend on shape and item size alone, so that every run processes a tensor in the same way.
    """
    rows = prod(shape[:-1])
    step = max(1, limit // max(1, (shape[-1] if shape else 1) * itemsize))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
