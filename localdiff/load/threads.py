"""The number of CPU threads for a model.

Knows torch's setting and the variable of its thread library; knows nothing about models but their number of weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from quant.process_limits import core_quota

SMALL = 100_000_000
"""Number of weights below which more than one thread gains nothing."""
THREADS_VARIABLE = "OMP_NUM_THREADS"

_taken: list[int] = []
"""Torch's number of threads before a small model set it to one, if one did; a large model loaded later restores it."""


def limit_threads(weights: int, device: torch.device, env: Mapping[str, str] = os.environ) -> None:
    """Runs a small model on a CPU with one thread, for the whole process, until a large one is loaded.

    The matmuls of a small model are over before a second thread has started. On a busy machine it is worse:
    threads that wait for each other spin, and a step takes as long as the scheduler takes to run them all
    (`OMP_NUM_THREADS=2 localdiff run -m demo …` while something keeps a core busy). One thread also sums
    in one order, so that what a seed gives does not depend on the number of cores.

    No model has more threads than a container grants it cores' time for; torch does not know of such a limit. Which
    cores the process is bound to is left to torch: where each of torch's threads has a core of its own
    (`OMP_PROC_BIND`, `OMP_PLACES`), this thread by now sees fewer.

    Args:
        weights: how many the model has.
        env: `OMP_NUM_THREADS`, where it is set, stays in force.
    """
    if THREADS_VARIABLE in env:
        return
    threads = torch.get_num_threads()
    if device.type == "cpu" and weights < SMALL:
        if threads > 1:
            _taken[:] = [threads]
        torch.set_num_threads(1)
        return
    wanted = _taken.pop() if device.type == "cpu" and threads == 1 and _taken else threads
    quota = core_quota()
    allowed = wanted if quota is None else min(wanted, quota)
    if allowed != threads:
        torch.set_num_threads(allowed)
