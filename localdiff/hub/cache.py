"""The names that the Hub's cache gives to files.

Knows how the cache is laid out; asks neither the Hub nor its client.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}")


def linked_sha256(file: Path) -> str | None:
    """The SHA-256 by which the cache names a large file; None where the file is small, or no link into the cache."""
    if not file.is_symlink():
        return None
    name = os.path.basename(os.path.realpath(file))
    return name if _SHA256.fullmatch(name) else None
