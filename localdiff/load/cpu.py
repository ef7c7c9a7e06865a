"""Fast modules on a CPU, and the one log line where the fastest are unavailable.

Knows when to say something; `quant.cpu` knows what can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cpu.choice import use_cpu_modules

_log = logging.getLogger(__name__)


def replace_cpu_modules(
    network: DiffusionGemma, *, spare: int | None = None, progress: Callable[[int, int], None]
) -> None:
    """Replaces modules that have a faster form on this CPU, in a network whose weights are in host memory.

    Args:
        spare: bytes that converted weights may take beyond their stored size; None sets no limit.
        progress: called with the number of modules done, and the number of all modules.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    warning = use_cpu_modules(network, spare=spare, progress=progress)
    if warning is not None:
        _log.warning("%s", warning)
