"""Fast modules and attention on a CPU, and the one log line where the fastest are unavailable.

Knows when to say something; `quant.cpu` knows what can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cpu.choice import attention_kernel, prepare

_log = logging.getLogger(__name__)


def prepare_cpu(
    network: DiffusionGemma, *, spare: int | None = None, progress: Callable[[int, int], None] | None = None
) -> None:
    """Replaces what has a faster form on this CPU, in a network whose weights are in host memory.

    Args:
        spare: bytes that converted weights may take beyond their stored size; None is no limit.
        progress: called with the number of modules done, and of all modules.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    config = network.config
    head_sizes = {layer.head_dim for layer in config.layers}
    weights = config.hidden_size * config.num_heads * max(head_sizes)
    network.attention_kernel = attention_kernel(head_sizes, weights)
    prepared = prepare(network, spare=spare, progress=progress)
    if prepared.warning is not None:
        _log.warning("%s", prepared.warning)
