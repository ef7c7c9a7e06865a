"""Checks whether Triton kernels can run on a GPU, by running one.

Knows one small kernel and what it must compute; knows nothing about models.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import torch

LEAST = (8, 0)
"""Lowest compute capability with bf16 tensor cores."""


@cache
def missing(device: torch.device) -> str | None:
    """What keeps kernels from running on a device, in a few words; None where nothing does."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"there is no CUDA device `{device}`"
    if torch.version.hip is not None:
        return "the kernels need an NVIDIA GPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.get_device_capability(device) < LEAST:
        return f"{torch.cuda.get_device_name(device)} is older than compute capability {LEAST[0]}.{LEAST[1]}"
    return _trial(device)


def _trial(device: torch.device) -> str | None:
    """Runs the smallest kernel that there is: it needs a driver, and where launchers are built a C compiler too."""
    from .rows import quantize_groups

    x = torch.linspace(-1, 1, 128, device=device).view(1, 128)
    try:
        with torch.cuda.device(device):
            rows = quantize_groups(x)
        back = rows.codes.float() * rows.scales.repeat_interleave(64, dim=1)
        exact = bool(((back - x).abs() <= 0.01).all())
    except Exception as error:  # any of the compiler's, whose errors have no class in common with others
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"Triton does not run here ({reason})"
    return None if exact else "Triton computes wrong numbers here"
