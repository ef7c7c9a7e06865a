"""Which card this is, with which torch, Triton and commit: figures measured with any other do not count as its own.

The driver is asked for the name because that takes no CUDA context. Asking torch would create one in every process that
only starts others: some hundred megabytes of the card, which would count in each peak measured there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from functools import cache
from pathlib import Path

_LONGEST = 256
_ROOT = Path(__file__).parents[2]


@cache
def card() -> dict[str, str]:
    """Name of the first card that a process sees, versions, and the commit; what is unknown is left out."""
    import torch

    found = {"gpu": _name(), "torch": torch.__version__, "triton": _triton(), "commit": _commit()}
    return {name: value for name, value in found.items() if value is not None}


def _name() -> str | None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_LONGEST)
    # Each call returns an error number, or 0; after an error, none is called.
    failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, _LONGEST, device)
    return None if failed else name.value.decode(errors="replace")


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
