"""Fast modules on a CPU, and the one log line where the fastest are unavailable.

Knows when to say something; `quant.cpu` knows what can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import nn

from quant.cpu.choice import prepare

_log = logging.getLogger(__name__)


def prepare_cpu(
    network: nn.Module, *, spare: int | None = None, progress: Callable[[int, int], None] | None = None
) -> None:
    """Replaces modules that have a faster form on this CPU, in a network whose weights are in its memory.

    Args:
        spare: bytes that converted weights may take beyond their stored size; None is no limit.
        progress: called with the number of modules that are done and of all.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    prepared = prepare(network, spare=spare, progress=progress)
    if prepared.lacking is not None:
        _log.warning("%s", prepared.lacking)
