"""Memory that torch keeps for later, given back while another model is to be loaded."""

from __future__ import annotations

import gc

import torch


def release_cached_memory() -> None:
    """Gives back what nobody uses: of each GPU, and of the host's page-locked memory, which others cannot use either.

    Up to torch 2.11 the latter has no public function.
    """
    gc.collect()
    if not torch.cuda.is_available():
        return
    torch.cuda.empty_cache()
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    else:
        torch._C._host_emptyCache()
