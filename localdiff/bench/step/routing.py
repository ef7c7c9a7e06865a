"""How the rows of a pass spread over the experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ...model.diffusion_gemma import DiffusionGemma


class Routing:
    """Counts rows by expert in the passes that it watches."""

    def __init__(self, network: DiffusionGemma) -> None:
        self._routers = [layer.get_submodule("router") for layer in network.layers]
        self._experts = network.config.num_experts
        self._counts: list[Tensor] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Counts what the routers choose inside."""
        hooks = [router.register_forward_hook(lambda _module, _inputs, out: self._add(out)) for router in self._routers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def hit(self) -> float:
        """Share of a layer's experts that get any row, over all layers and passes."""
        return float((torch.stack(self._counts) > 0).float().mean())

    @property
    def busiest(self) -> int:
        """Most rows that one expert got in one pass."""
        return int(torch.stack(self._counts).max())

    def _add(self, routed: tuple[Tensor, Tensor]) -> None:
        self._counts.append(torch.bincount(routed[0].flatten(), minlength=self._experts).cpu())
