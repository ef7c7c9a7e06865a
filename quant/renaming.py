"""Names for files that are complete, where another program may be looking at the file that has the name now.

Knows renames; knows nothing about what is in a file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

PATIENCE, PAUSE = 2.0, 0.05
"""Seconds."""


def replace(old: Path, new: Path) -> None:
    """`os.replace`; on Windows again for a short while: scanners and indexers open what has just been written.

    Raises:
        OSError: it is refused, or fails.
    """
    end = time.monotonic() + (PATIENCE if sys.platform == "win32" else 0.0)
    while True:
        try:
            os.replace(old, new)
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(PAUSE)
        else:
            return
