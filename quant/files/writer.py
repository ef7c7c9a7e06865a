"""Writes one shard to the disk.

Knows the safetensors layout and how a file is written atomically; knows nothing about codecs. The header is known
before the first weight, so parts are written to their places as they come, and no shard is ever held in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from quant.files.disk import Disk
from quant.files.source import HeaderEntry
from quant.hashing import file_sha256
from quant.names import PARTIAL

ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A shard's header and the place of each of its parts, in bytes from the start of the file."""

    header: bytes
    starts: dict[str, int]
    nbytes: int

    @classmethod
    def of(cls, parts: Iterable[HeaderEntry]) -> Self:
        """The layout of `docs/format.md`: multiples of 64 bytes first, the rest by decreasing element size."""
        ordered = sorted(parts, key=lambda part: (part.nbytes % ALIGNMENT != 0, -part.itemsize, part.name))
        entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
        starts, end = {}, 0
        for part in ordered:
            starts[part.name], offsets = end, [end, end + part.nbytes]
            entries[part.name] = {"dtype": part.dtype, "shape": list(part.shape), "data_offsets": offsets}
            end += part.nbytes
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % ALIGNMENT)
        header = len(text).to_bytes(8, "little") + text
        in_file = {name: len(header) + start for name, start in starts.items()}
        return cls(header=header, starts=in_file, nbytes=len(header) + end)


class ShardWriter:
    """Writes one shard under a name that says it is unfinished.

    Args:
        disk: what to write to.
        path: the shard's final path.
        layout: its parts.
    """

    def __init__(self, disk: Disk, path: Path, layout: Layout) -> None:
        self._disk, self._path, self._layout = disk, path, layout
        self._partial = path.with_name(path.name + PARTIAL)
        self._file = disk.create(self._partial)
        disk.write(self._file, 0, layout.header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()

    def write(self, name: str, element: int, values: Tensor) -> None:
        """Write `values` into a part, starting at its element number `element`."""
        offset = self._layout.starts[name] + element * values.itemsize
        in_one_piece = values.detach().cpu().contiguous().view(-1)
        self._disk.write(self._file, offset, in_one_piece.view(torch.uint8).numpy().data)

    def finish(self) -> str:
        """Give the finished shard its final name; returns its SHA-256, taken from what was written.

        Raises:
            ValueError: the file has another size than its header says.
        """
        self._disk.sync(self._file)
        self._file.close()
        if self._partial.stat().st_size != self._layout.nbytes:
            raise ValueError(f"{self._partial} should have {self._layout.nbytes} bytes")
        digest = file_sha256(self._partial)
        self._disk.rename(self._partial, self._path)
        return digest
