"""Permissions that also bind root: tests may run as root, who can otherwise read and delete anything.

On Linux, capabilities let root do so, and a thread can drop them for a while.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_VERSION = 0x20080522
_OVERRIDES = 1 << 1 | 1 << 2 | 1 << 3
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER."""


@contextmanager
def as_anyone() -> Iterator[None]:
    """Context in which the modes of files bind this thread and the threads that it starts.

    Processes that it starts are not bound.
    """
    if sys.platform == "win32" or (os.geteuid() == 0 and sys.platform != "linux"):
        pytest.skip("modes of files do not bind this user")
    if os.geteuid() != 0:
        yield
        return
    held = _capabilities()
    _set_capabilities([held[0] & ~_OVERRIDES, *held[1:]])
    try:
        yield
    finally:
        _set_capabilities(held)


def _capabilities() -> list[int]:
    """Effective, permitted and inheritable sets: first the low halves, then the high ones."""
    data = (ctypes.c_uint32 * 6)()
    _call("capget", data)
    return list(data)


def _set_capabilities(values: list[int]) -> None:
    _call("capset", (ctypes.c_uint32 * 6)(*values))


def _call(name: str, data: ctypes.Array[ctypes.c_uint32]) -> None:
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    if getattr(ctypes.CDLL(None, use_errno=True), name)(header, data) != 0:
        raise OSError(ctypes.get_errno(), f"{name} failed")
