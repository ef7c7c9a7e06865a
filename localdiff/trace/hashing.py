"""Hashes of weights and vocabulary, which tell whether a run can be repeated from a directory.

Knows files and SHA-256; knows nothing about tensors. A file whose hash is known already is not read again: a
manifest holds the hashes of the shards it lists, and the Hub's cache names large files by their hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from localdiff.adapter_reference import CONFIG_FILE, WEIGHTS_FILE
from localdiff.checkpoint_files import TOKENIZER
from localdiff.hub.cache import linked_sha256
from quant import MANIFEST_FILE
from quant.hashing import file_sha256


def weights_digest(directory: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> str:
    """SHA-256 over a line `HASH  NAME` for each weight file, sorted by name, in hex.

    The files are `*.safetensors`, or the manifest alone where there is one.

    Args:
        progress: called with the bytes read so far and the bytes to read.

    Raises:
        OSError: a file cannot be read.
    """
    manifest = directory / MANIFEST_FILE
    found = [manifest] if manifest.is_file() else sorted(directory.glob("*.safetensors"))
    digests = {file: linked_sha256(file) for file in found}
    # What is no file, such as a link that leads nowhere or a pipe, holds no weights: loading does without it.
    files = [file for file in found if digests[file] is not None or file.is_file()]
    sizes = {file: file.stat().st_size for file in files if digests[file] is None}
    total, done = sum(sizes.values()), 0

    def show(nbytes: int) -> None:
        progress(done + nbytes, total)

    for file, size in sizes.items():
        digests[file] = file_sha256(file, show)
        done += size
    return hashlib.sha256("".join(f"{digests[file]}  {file.name}\n" for file in files).encode()).hexdigest()


def adapter_digest(directory: Path) -> str:
    """SHA-256 over a line `HASH  NAME` for the two files of an adapter, in hex; raises OSError where one is missing."""
    lines = "".join(f"{file_sha256(directory / name)}  {name}\n" for name in (CONFIG_FILE, WEIGHTS_FILE))
    return hashlib.sha256(lines.encode()).hexdigest()


def tokenizer_digest(directory: Path) -> str:
    """SHA-256 of `tokenizer.json` in hex; raises OSError where there is none."""
    return file_sha256(directory / TOKENIZER)
