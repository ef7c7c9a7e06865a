"""Hashes of weights and vocabulary, which tell whether a directory can repeat a run.

Knows files and SHA-256; knows nothing about tensors. A file whose hash is known already is not read again: a
manifest holds the hashes of the shards it lists, the Hub's cache names large files by their hash, and those of other
files are recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localdiff.checkpoint_files import TOKENIZER
from localdiff.checkpoints.adapter_reference import CONFIG_FILE, WEIGHTS_FILE
from localdiff.checkpoints.weight_hashes import hashes
from localdiff.hub.cache import linked_sha256
from localdiff.identity import ModelIdentity
from quant import MANIFEST_FILE
from quant.hashing import file_sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests:
    """Hashes of a model's files; all None for a model without files."""

    weights: str | None = None
    tokenizer: str | None = None
    adapter: str | None = None


def digests_of(identity: ModelIdentity, progress: Callable[[int, int], None]) -> Digests:
    """The hashes of a model's files; reads all weights once unless their hashes are known."""
    if identity.directory is None:
        return Digests()
    return Digests(
        weights=weights_digest(identity.directory, progress),
        tokenizer=tokenizer_digest(identity.directory),
        adapter=None if identity.adapter_directory is None else adapter_digest(identity.adapter_directory),
    )


def weights_digest(directory: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> str:
    """SHA-256 over a line `HASH  NAME` for each weight file, sorted by name, in hex.

    The files are `*.safetensors`, or the manifest alone where there is one.

    Args:
        progress: called with the bytes read so far and the bytes to read.

    Raises:
        OSError, SourceError: a file cannot be read.
    """
    manifest = directory / MANIFEST_FILE
    if manifest.is_file():
        return _over({MANIFEST_FILE: file_sha256(manifest)})
    linked = {file.name: linked_sha256(file) for file in directory.glob("*.safetensors")}
    # Anything but a file, such as a dangling link or a pipe, holds no weights: loading ignores it.
    unknown = [name for name, sha256 in linked.items() if sha256 is None and (directory / name).is_file()]
    read = hashes(directory, sorted(unknown), progress)
    return _over({name: sha256 for name, sha256 in linked.items() if sha256 is not None} | read)


def adapter_digest(directory: Path) -> str:
    """SHA-256 over a line `HASH  NAME` for the two files of an adapter, in hex; raises OSError where one is missing."""
    return _over({name: file_sha256(directory / name) for name in (CONFIG_FILE, WEIGHTS_FILE)})


def tokenizer_digest(directory: Path) -> str:
    """SHA-256 of `tokenizer.json` in hex; raises OSError where there is none."""
    return file_sha256(directory / TOKENIZER)


def _over(digests: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()).hexdigest()
