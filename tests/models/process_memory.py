"""Memory of this process that no file backs, as the kernel counts it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_STATUS = Path("/proc/self/status")

needs_status = pytest.mark.skipif(
    not _STATUS.exists(), reason="asks the kernel for the anonymous memory of this process"
)


def anonymous_bytes() -> int:
    match = re.search(r"^RssAnon:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024
