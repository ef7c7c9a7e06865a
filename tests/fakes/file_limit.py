"""A limit on the size of files: a disk that looks full to whoever writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Context in which this process can write no file beyond that many bytes: the system reports an error."""
    if sys.platform == "win32":
        pytest.skip("Windows limits no file's size")
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
