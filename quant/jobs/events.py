"""Progress events of a quantization job and of a verification.

Knows names and numbers in plain values; knows nothing about progress bars. Progress is measured in bytes of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStarted:
    """The job starts; `source_bytes` of source files are still to be read."""

    source_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardStarted:
    """A source file of `source_bytes` is being read into a shard."""

    shard: str
    source_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BytesDone:
    """Another `source_bytes` of the source have been processed, in the tensor `name`."""

    name: str
    source_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorDone:
    """A tensor is stored; `error` is the relative RMSE of its decoded values, 0 for a kept tensor."""

    error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardWritten:
    """A shard is finished, and stays finished if the job stops now.

    Attributes:
        source, source_sha256: the weight file that it was made from, and that file's SHA-256 as read.
    """

    source: str
    source_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputWritten:
    """Every file of the output is written and will now be read back; `directory` is not its final name yet."""

    directory: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChecked:
    """A file of the output was compared with the manifest; `problem` is None or a sentence.

    Attributes:
        is_barred: whether the problem is only that this user may not read the file, which may be sound.
    """

    file: str
    nbytes: int
    problem: str | None
    is_barred: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStopped:
    """The job was asked to stop with `finished` shards done; the same job continues at the first unfinished shard."""

    finished: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFinished:
    """The output is whole, verified and in its place.

    Attributes:
        nbytes: bytes of its shards.
        source_bytes: bytes of the source that this run read.
        seconds: wall time of reading, encoding and writing the shards.
    """

    nbytes: int
    source_bytes: int
    seconds: float


JobEvent: TypeAlias = (
    JobStarted
    | ShardStarted
    | BytesDone
    | TensorDone
    | ShardWritten
    | OutputWritten
    | FileChecked
    | JobStopped
    | JobFinished
)
