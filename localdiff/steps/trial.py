"""The steps that a model takes while it loads: kernels are compiled in them, and one that fails shows itself.

Knows which errors are a kernel's; knows nothing about how a model is loaded without them.
"""

from __future__ import annotations

import torch

from quant.cuda.support import exclude

from ..errors import is_out_of_memory
from ..load_progress import LoadProgress, tell_nobody
from .denoiser import Denoiser


def runs(denoiser: Denoiser, device: torch.device, progress: LoadProgress = tell_nobody) -> bool:
    """Whether static steps run; if they fail, models prepared from now on use no kernels on this device.

    Args:
        progress: is told how many of the steps are taken.

    Raises:
        RuntimeError: the memory is too small, or what failed has left a GPU that computes nothing any more.
    """
    if not denoiser.path.static:
        return True
    try:
        denoiser.warm_up(progress)
    except Exception as error:  # of a compiler, of a launch, or results that are no numbers: they share no class
        if is_out_of_memory(error) or not _still_works(device):
            raise
        exclude(device, error)
        return False
    return True


def _still_works(device: torch.device) -> bool:
    """Whether this process can go on with a device: after an illegal access, every call of CUDA fails."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True
