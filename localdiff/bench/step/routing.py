"""How the rows of a pass spread over the experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from localdiff.model.diffusion_gemma import DiffusionGemma


class Routing:
    """Counts rows by expert in the passes that it watches.

    While watching, it only keeps what the routers chose: counting launches kernels and waits for the device, and that
    time would be charged to whatever part of the network is on the clock.
    """

    def __init__(self, network: DiffusionGemma) -> None:
        self._routers = [layer.get_submodule("router") for layer in network.layers]
        self._experts = network.config.num_experts
        self._expert_ids: list[Tensor] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keeps what the routers choose inside."""
        hooks = [
            router.register_forward_hook(lambda _module, _inputs, routed: self._expert_ids.append(routed[0]))
            for router in self._routers
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def experts_hit(self) -> float:
        """Share of a layer's experts that get any row, over all layers and passes."""
        return float((self._counts() > 0).float().mean())

    @property
    def busiest(self) -> int:
        """Most rows that one expert got in one pass."""
        return int(self._counts().max())

    def _counts(self) -> Tensor:
        """Rows [layers × passes, experts]."""
        return torch.stack([torch.bincount(index.flatten(), minlength=self._experts) for index in self._expert_ids])
