"""Fast modules on a CPU.

Knows which errors are the user's; `quant.cpu` knows what can be done.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from quant.cpu.choice import prepare

from ..switches import reading_switches


def prepare_cpu(
    network: nn.Module, *, spare: int | None = None, progress: Callable[[int, int], None] | None = None
) -> None:
    """Replaces modules that have a faster form on this CPU.

    Args:
        spare: bytes that converted weights may take beyond their stored size; None is no limit.
        progress: called with the number of modules that are done and of all.

    Raises:
        UsageError: an environment variable has an invalid value.
    """
    with reading_switches():
        prepare(network, spare=spare, progress=progress)
