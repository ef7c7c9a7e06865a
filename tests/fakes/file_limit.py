"""A limit on the size of files: a disk that is full, as far as whoever writes can tell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Context in which this process may write no file beyond so many bytes: it gets an error of the system."""
    if sys.platform == "win32":
        pytest.skip("Windows limits no file's size")
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
