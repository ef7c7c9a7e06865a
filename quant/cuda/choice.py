"""Which quantized module is replaced by which fast one, on a card.

    experts     nf4 and int8, grouped products in Triton
    others      stay plain: decoded, then multiplied

A weight is moved, never kept twice: a module's stored parts are let go before the next module's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ..modules.experts import QuantExperts
from .experts import Activations, CudaExperts
from .support import missing
from .switches import EXPERTS, SwitchError, choice, is_plain

__all__ = ["Prepared", "SwitchError", "prepare"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What became of a model's modules.

    Attributes:
        paths: what was done, a line each.
        lacking: what keeps the fast way from being taken, and what that means; None where nothing does.
    """

    paths: tuple[str, ...] = ()
    lacking: str | None = None


def prepare(model: nn.Module, device: torch.device, *, progress: Callable[[int, int], None] | None = None) -> Prepared:
    """Replaces the quantized modules of a model that lies on one card, with its weights assigned.

    Args:
        progress: called with the number of modules that are done and of all.

    Raises:
        SwitchError: an environment variable says what it cannot say.
    """
    activations: Activations = "a8" if choice(EXPERTS, "a16", "a8") else "a16"
    found = [path for path, module in model.named_modules() if isinstance(module, QuantExperts)]
    if not found or is_plain("experts"):
        return Prepared()
    reason = missing(device)
    if reason is not None:
        return Prepared(
            lacking=f"{reason}: experts are decoded one by one, and the program waits for the card in each layer"
        )
    paths = []
    for done, path in enumerate(found, 1):
        parent, _, attribute = path.rpartition(".")
        owner = model.get_submodule(parent)
        fast = CudaExperts(getattr(owner, attribute), activations).eval()
        setattr(owner, attribute, fast)
        paths.append(fast.path)
        if progress is not None:
            progress(done, len(found))
    return Prepared(paths=tuple(f"experts of {paths.count(path)} layers: {path}" for path in dict.fromkeys(paths)))
