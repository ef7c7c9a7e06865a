"""Which card this is, and which torch and Triton compile its kernels: figures of another are not its own.

The driver is asked for the name, which takes no CUDA context: with torch there would be one in every process that only
starts others, some hundred megabytes of the card, and of each peak that is measured there.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache

_DRIVERS = ("libcuda.so.1", "nvcuda.dll")
"""Of Linux and of Windows."""
_LONGEST = 256


@cache
def card() -> dict[str, str]:
    """Name of the first card that a process sees, and versions; what there is not, is not in it."""
    import torch

    found = {"gpu": _name(), "torch": torch.__version__, "triton": _triton()}
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


def _triton() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return None
    import triton

    return str(triton.__version__)
