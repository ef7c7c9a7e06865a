"""The weight files of a checkpoint, as their headers and its index describe them.

Knows both formats; does not know what a tensor is for. Headers are enough for a plan: no weight is read here.

A safetensors file is `u64 header length | JSON header | data`; offsets in the header count from the start of the data.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from quant.dtypes import HEADER_DTYPES
from quant.errors import FormError, SourceError, reason

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
MAX_HEADER = 100_000_000
MAX_BYTES = 2**63 - 1
"""Of any file. Larger numbers may exceed what Python prints (4,300 digits) or converts to float (1.8e308)."""
_IN_NO_NAME = re.compile(r"[/\\:\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_NAME = 255
"""Most bytes in a file name on common file systems; for a longer name they do not report a missing file."""
HINT = "download the weights again, or point to a complete copy"
PULL = "`git lfs pull` in its folder fetches the file itself"
_POINTER = b"version https://git-lfs."
_ORIGINAL = "use the original weights (BF16, F16 or F32)"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderEntry:
    """What the header of a file says of a tensor, except its position; its type is a key of `HEADER_DTYPES`."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Stored bytes."""
        return prod(self.shape) * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return HEADER_DTYPES[self.dtype].itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor(HeaderEntry):
    """A tensor in a file.

    Attributes:
        file: name of its file, or "" where only the model's description is known.
        start: first byte in the file.
    """

    file: str
    start: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """One weight file that exists or can be fetched.

    Attributes:
        name: its name, without a path.
        nbytes: its size.
        sha256: what it must hash to, or None where that is unknown.
        tensors: its tensors in the order of their bytes.
    """

    name: str
    nbytes: int
    sha256: str | None
    tensors: tuple[StoredTensor, ...]


def parse_header(file: str, start: bytes, nbytes: int) -> tuple[StoredTensor, ...]:
    """Tensors of a file, by position.

    Args:
        file: its name, for messages and for the tensors.
        start: its first bytes, header included.
        nbytes: size of the whole file.

    Raises:
        SourceError: the header is cut short, impossible, or lists bytes that the file does not have; or a tensor has a
            type that is not read.
    """
    length = header_length(file, start)
    try:
        header = json.loads(start[8 : 8 + length].decode("utf-8"))
        tensors = sorted(
            (_stored_tensor(name, entry, file, 8 + length) for name, entry in header.items() if name != "__metadata__"),
            key=lambda tensor: (tensor.start, tensor.nbytes, tensor.name),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"`{file}` has a damaged header ({reason(error)})", HINT) from error
    end = 8 + length
    for tensor in tensors:
        if tensor.start != end:
            raise SourceError(f"`{file}` has a damaged header (`{tensor.name}` is out of place)", HINT)
        end += tensor.nbytes
    if end != nbytes:
        raise SourceError(f"`{file}` has {nbytes} bytes, where its header asks for {end}", HINT)
    return tuple(tensors)


def header_length(file: str, start: bytes) -> int:
    """Bytes of the JSON header, from the first eight bytes of the file.

    Raises:
        SourceError: they hold an impossible length.
    """
    length = int.from_bytes(start[:8], "little")
    if len(start) < 8 or not 2 <= length <= MAX_HEADER:
        raise SourceError(f"`{file}` is not a safetensors file", HINT)
    return length


def _stored_tensor(name: str, entry: dict[str, Any], file: str, base: int) -> StoredTensor:
    shape, dtype = tuple(entry["shape"]), entry["dtype"]
    if isinstance(dtype, str) and dtype not in HEADER_DTYPES:
        raise SourceError(f"`{name}` in `{file}` has the type {dtype}, which localdiff does not read", _ORIGINAL)
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise FormError(f"`{name}` has an impossible shape")
    start, end = entry["data_offsets"]
    if type(start) is not int or type(end) is not int or end > MAX_BYTES:
        raise FormError(f"`{name}` has an impossible place")
    tensor = StoredTensor(name=name, dtype=dtype, shape=shape, file=file, start=base + start)
    if end - start != tensor.nbytes:
        raise FormError(f"`{name}` has {end - start} bytes, its shape asks for {tensor.nbytes}")
    return tensor


def read_source(directory: Path) -> tuple[SourceFile, ...]:
    """The weight files of a checkpoint directory, from their headers.

    Args:
        directory: holds `model.safetensors`, or an index and the files that it names.

    Raises:
        SourceError: files are missing, damaged, or contradict the index.
    """
    index = weight_map(directory)
    files = []
    for name in weight_files(index):
        path = directory / name
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait
                raise SourceError(f"`{path}` is not a file", HINT)
            files.append(described_file(path))
        except OSError as error:
            raise unreadable(f"the weight file `{path}`", error) from error
    return check_complete(files, index, str(directory))


def unreadable(file: str, error: OSError) -> SourceError:
    """The error that a file, named in words, cannot be read; the hint is a download, or permissions if they are why."""
    hint = "check its permissions" if isinstance(error, PermissionError) else HINT
    return SourceError(f"{file} cannot be read ({error.strerror})", hint)


def described_file(path: Path) -> SourceFile:
    """A weight file, from its header.

    Raises:
        SourceError: it is damaged.
        OSError: it cannot be read.
    """
    name, nbytes = path.name, path.stat().st_size
    if is_pointer(path):
        raise SourceError(f"`{path}` is only a pointer of Git LFS to the weights", PULL)
    with path.open("rb") as file:
        start = read_start(name, file.read)
    return SourceFile(name=name, nbytes=nbytes, sha256=None, tensors=parse_header(name, start, nbytes))


def is_pointer(path: Path) -> bool:
    """Whether a file is what a clone has in place of a large one where Git LFS is not installed.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def check_complete(files: Iterable[SourceFile], weight_map: Mapping[str, str], where: str) -> tuple[SourceFile, ...]:
    """The same files, if together they are a whole checkpoint.

    Args:
        files: from their headers.
        weight_map: tensor → file, from the index; empty where there is none.
        where: a directory or a Hub id, for messages.

    Raises:
        SourceError: a tensor is in two files, or not where the index says.
    """
    files = tuple(files)
    file_of = {tensor.name: file.name for file in files for tensor in file.tensors}
    if len(file_of) != sum(len(file.tensors) for file in files):
        raise SourceError(f"two files of `{where}` hold a tensor of the same name", HINT)
    missing = sorted(name for name, file in weight_map.items() if file_of.get(name) != file)
    if missing:
        raise SourceError(f"`{weight_map[missing[0]]}` lacks `{missing[0]}`, which `{INDEX_FILE}` lists", HINT)
    return files


def read_start(file: str, read: Callable[[int], bytes]) -> bytes:
    """The first bytes of a file, header included, from a function that reads the next bytes.

    Raises:
        SourceError: they are not those of a safetensors file.
    """
    start = read(8)
    return start + read(header_length(file, start))


def entry_file(files: Path | Container[str]) -> str | None:
    """The file that leads to a checkpoint's weights: the single weight file or the index; None if it has neither.

    A single file takes precedence over an index, as in transformers.

    Args:
        files: the checkpoint's directory, or the names of its files.
    """
    for name in (SINGLE_FILE, INDEX_FILE):
        if (files / name).exists() if isinstance(files, Path) else name in files:
            return name
    return None


def weight_files(weight_map: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the weight files of a checkpoint with this index."""
    return tuple(sorted(set(weight_map.values()))) or (SINGLE_FILE,)


def weight_map(directory: Path) -> dict[str, str]:
    """The index's map from tensor to file; empty where a single file holds all tensors.

    Raises:
        SourceError: there are no weights, or the index is damaged or cannot be read.
    """
    index = directory / INDEX_FILE
    entry = entry_file(directory)
    if entry is None:
        raise SourceError(f"`{directory}` has no weights: neither `{SINGLE_FILE}` nor `{INDEX_FILE}`", HINT)
    if entry == SINGLE_FILE:
        return {}
    if not index.is_file():
        raise SourceError(f"`{index}` is not a file", HINT)
    if index.stat().st_size > MAX_HEADER:
        raise SourceError(f"`{index}` is larger than any index", HINT)
    try:
        return parse_index(index.read_bytes())
    except OSError as error:
        raise unreadable(f"`{index}`", error) from error


def parse_index(content: bytes) -> dict[str, str]:
    """The `weight_map` of an index: tensor → file.

    An index may have been downloaded, so it may name files in its own directory only, and no paths.

    Raises:
        SourceError: it is not an index, or names something that is not a file in its directory.
    """
    try:
        index = json.loads(content.decode("utf-8"))
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict):
            raise FormError("it has no `weight_map` from tensors to files")
        if not weight_map:
            raise FormError("its `weight_map` is empty")
        for name in weight_map.values():
            if not is_file_name(name):
                shown = f"{name!r:.60}" if isinstance(name, str) else "an entry of its `weight_map`"
                raise FormError(f"{shown} is not a file name")
    except (ValueError, RecursionError) as error:
        raise SourceError(f"`{INDEX_FILE}` is damaged ({reason(error)})", HINT) from error
    return weight_map


def is_file_name(name: object) -> bool:
    """Whether this can name a file: without a folder or drive, control characters and surrogates, and not too long."""
    if not isinstance(name, str) or name in ("", ".", "..") or _IN_NO_NAME.search(name):
        return False
    return len(name.encode()) <= _MAX_NAME


class SourceStoppedError(Exception):
    """Fetching weight files was stopped before this one arrived."""
