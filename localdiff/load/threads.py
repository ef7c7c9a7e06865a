"""How many threads a processor computes a small model on.

Knows torch's setting and the variable of its thread library; knows nothing about models but how many weights they have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

SMALL = 100_000_000
"""Weights below which more than one thread gains nothing."""
WISH = "OMP_NUM_THREADS"


def settle_threads(weights: int, device: torch.device, env: Mapping[str, str] = os.environ) -> None:
    """Leaves a small model on a processor to one thread, for the whole process.

    The products of a small model are over before a second thread has begun. On a machine with other work it is worse:
    threads that wait for each other spin, and a step takes as long as the scheduler takes to run them all
    (`OMP_NUM_THREADS=2 localdiff run -m demo …` beside something that keeps a core busy). One thread also adds up
    in one order, so that what a seed gives does not depend on the number of cores.

    Args:
        weights: how many the model has.
        device: where it computes.
        env: `OMP_NUM_THREADS`, where somebody has set it, is left in force.
    """
    if device.type == "cpu" and weights < SMALL and WISH not in env:
        torch.set_num_threads(1)
