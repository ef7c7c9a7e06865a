"""The steps that a model takes while it loads: kernels are compiled in them, and one that fails shows itself.

Knows which errors are a kernel's; knows nothing about how a model is loaded without them.
"""

from __future__ import annotations

import torch

from quant.cuda.support import exclude

from ..errors import is_out_of_memory
from .denoiser import Denoiser


def runs(denoiser: Denoiser, device: torch.device) -> bool:
    """Whether static steps run; if they fail, models prepared from now on use no kernels on this device.

    Raises:
        RuntimeError: the memory is too small.
    """
    if not denoiser.path.static:
        return True
    try:
        denoiser.warm_up()
    except Exception as error:  # of a compiler, of a launch, or results that are no numbers: they share no class
        if is_out_of_memory(error):
            raise
        exclude(device, error)
        return False
    return True
