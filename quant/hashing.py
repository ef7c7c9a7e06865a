"""SHA-256 of files.

Knows bytes; knows nothing about what they mean, and needs no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_PIECE = 1 << 22


def file_sha256(path: Path, progress: Callable[[int], None] = lambda done: None) -> str:
    """SHA-256 of a file's content in hex.

    Args:
        progress: called with the bytes read so far.
    """
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            progress(done)
    return digest.hexdigest()
