"""The network of a checkpoint on the CPU, in one call."""

from __future__ import annotations

from pathlib import Path

import torch

from localdiff.adapter import open_adapter
from localdiff.load import load_model, open_weights, plan_memory
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import CONTEXT_SIZE


def network_of(
    directory: Path, dtype: torch.dtype = torch.float32, *, adapter: Path | None = None, context: int = CONTEXT_SIZE
) -> DiffusionGemma:
    """Loaded as an engine loads it, with the adapter in a directory, if there is one."""
    added = None if adapter is None else open_adapter(str(adapter))
    plan = plan_memory(open_weights(directory), torch.device("cpu"), dtype, adapter=added, context=context)
    return load_model(plan).network
