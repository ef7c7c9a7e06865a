"""What a job keeps in its unfinished output: `job.json`, which identifies the job, and a note on each finished shard.

Knows these files; does not know what is done with a directory that has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quant.errors import OutputError
from quant.files.manifest import FileEntry, Manifest, ShardEntry, TensorEntry
from quant.jobs.identity import Identity
from quant.names import JOB_FILE, PARTIAL


class Begun(NamedTuple):
    """An unfinished job: its identity, or None if that cannot be read, and the known SHA-256 of its sources."""

    identity: Identity | None
    hashes: Mapping[str, str]

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> Begun:
        """The job that wrote a manifest and was stopped after that."""
        return cls(Identity.of_manifest(manifest), {})


def job_bytes(identity: Identity, hashes: Mapping[str, str]) -> bytes:
    """The content of `job.json`."""
    return json.dumps({"job": identity.to_json(), "sources": hashes}, indent=2).encode()


def read_job(directory: Path) -> Begun | None:
    """The job that began a directory; None if no job did.

    Raises:
        OutputError: the directory cannot be read.
    """
    try:
        content = json.loads((directory / JOB_FILE).read_bytes())
        return Begun(Identity.from_json(content["job"]), dict(content["sources"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OutputError(
            f"`{directory}` cannot be read: {error.strerror}", "choose a directory that you may write to"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Begun(None, {})


def is_unfinished(directory: Path) -> bool:
    """Whether a directory is the unfinished output of a job; other programs also use the name `job.json`."""
    path = directory / JOB_FILE
    if not path.is_file():
        return False
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return directory.name.endswith(PARTIAL)
    return isinstance(content, dict) and content.keys() >= {"job", "sources"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """The manifest entries of a finished shard."""

    shard: ShardEntry
    source: FileEntry
    tensors: Mapping[str, TensorEntry]

    @classmethod
    def of_manifest(cls, manifest: Manifest, name: str) -> Note:
        """The entries of one shard from the manifest of a finished output."""
        shard = manifest.shards[name]
        tensors = {tensor: entry for tensor, entry in manifest.tensors.items() if entry.shard == name}
        return cls(shard=shard, source=manifest.sources[shard.source], tensors=tensors)

    @classmethod
    def read(cls, path: Path) -> Note | None:
        """A shard's note; None where it is missing, invalid or cannot be read: then the shard is made again."""
        try:
            value = json.loads(path.read_bytes())
            return cls(
                shard=ShardEntry.from_json(value["shard"]),
                source=FileEntry.from_json(value["source"]),
                tensors={name: TensorEntry.from_json(entry) for name, entry in value["tensors"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None

    def to_bytes(self) -> bytes:
        """The content of the note's file."""
        content = {
            "shard": self.shard.to_json(),
            "source": self.source.to_json(),
            "tensors": {name: entry.to_json() for name, entry in self.tensors.items()},
        }
        return json.dumps(content, indent=2).encode()
