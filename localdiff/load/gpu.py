"""Fast modules on an NVIDIA GPU, and the one log line where they are unavailable.

Knows when to say something; `quant.cuda` knows what can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import torch
from torch import nn

from quant.cuda.choice import prepare
from quant.cuda.parity import Expectation

_log = logging.getLogger(__name__)


def prepare_gpu(
    network: nn.Module,
    device: torch.device,
    *,
    adapted: Collection[str] = (),
    passing: Collection[str] = (),
    rows: Sequence[int] = (),
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[Expectation, ...]:
    """Replaces modules that have a faster form on this GPU, in a network that computes on it as a whole.

    Args:
        adapted: paths of experts with an adapter hook, which the fused kernels do not support.
        passing: paths of modules whose weights are on the GPU during their pass only; they stay as they are.
        rows, dtype: of activations, for the plain results that fast modules are held against.

    Returns:
        Those results; none without rows.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    prepared = prepare(network, device, keep={*adapted, *passing}, rows=rows, dtype=dtype)
    for path in prepared.paths:
        _log.info("%s", path)
    if adapted:
        _log.warning(
            "the adapter changes the experts of %d layer%s: those are computed one by one, and no step is captured "
            "as a CUDA graph, which is slower",
            len(adapted),
            "s" * (len(adapted) > 1),
        )
    if prepared.lacking is not None:
        _log.warning("%s", prepared.lacking)
    return prepared.expectations
