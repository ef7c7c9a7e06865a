"""Which card this is, with which torch, Triton and commit: figures of others are not its own.

The driver is asked for the name, which takes no CUDA context: with torch there would be one in every process that only
starts others, some hundred megabytes of the card, and of each peak that is measured there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from functools import cache
from pathlib import Path

_DRIVERS = ("libcuda.so.1", "nvcuda.dll")
"""Of Linux and of Windows."""
_LONGEST = 256
_ROOT = Path(__file__).parents[2]


@cache
def card() -> dict[str, str]:
    """Name of the first card that a process sees, versions, and the commit; what there is not, is not in it."""
    import torch

    found = {"gpu": _name(), "torch": torch.__version__, "triton": _triton(), "commit": _commit()}
    return {name: value for name, value in found.items() if value is not None}


def _name() -> str | None:
    for driver in _DRIVERS:
        try:
            cuda = ctypes.CDLL(driver)
        except OSError:
            continue
        device, name = ctypes.c_int(), ctypes.create_string_buffer(_LONGEST)
        # Each returns an error's number, or 0, and none is called behind an error.
        if not (
            cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, _LONGEST, device)
        ):
            return name.value.decode(errors="replace")
    return None


def _commit() -> str | None:
    """The commit of this code, and whether files have changed since; None without git, or in a copy without history."""
    try:
        commit, changes = (
            subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}, changed" if changes else commit


def _triton() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return None
    import triton

    return str(triton.__version__)
