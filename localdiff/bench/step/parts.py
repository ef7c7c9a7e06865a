"""The seconds of a pass, by part of the network.

Every second is counted once, for the innermost part that is running. Knows module names; knows nothing about what a
part computes. On an asynchronous device each border between two parts synchronizes, so that a pass under the clock is
slower than one without.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import nn

from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.projections import Projections

Part: TypeAlias = Literal[
    "attention projections",
    "attention core",
    "dense MLP",
    "router",
    "experts",
    "norms, residuals",
    "head",
    "sampling",
    "self-conditioning",
]
PARTS: tuple[Part, ...] = get_args(Part)
IN_LAYERS: tuple[Part, ...] = PARTS[:6]
"""Parts that every layer has."""

Place: TypeAlias = tuple[Part, int | None]
"""A part, and the number of its layer where it belongs to one."""


class PartClock:
    """Sums seconds by place while it watches a network.

    Args:
        wait: synchronizes with the device.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._seconds: dict[Place, float] = defaultdict(float)
        self._stack: list[Place] = []
        self._mark = 0.0

    @contextmanager
    def within(self, part: Part, layer: int | None = None) -> Iterator[None]:
        """Counts what happens inside for a part."""
        self._enter((part, layer))
        try:
            yield
        finally:
            self._leave()

    def take(self) -> dict[Place, float]:
        """Seconds since the last call, by place."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds

    @contextmanager
    def watching(self, network: DiffusionGemma) -> Iterator[None]:
        """Hooks the clock to the parts of a network, until the end of the block."""
        embedding, conditioning = network.embed_tokens, network.self_conditioning
        with ExitStack() as stack:
            for module, part, layer in _modules(network):
                stack.enter_context(module.register_forward_pre_hook(partial(self._enter, (part, layer))))
                stack.enter_context(module.register_forward_hook(self._leave))
            self._replace(stack, network, "rows", "norms, residuals")  # static steps do not call it as a whole
            self._replace(stack, embedding, "logits", "head")
            self._replace(stack, embedding, "soft", "self-conditioning")
            self._replace(stack, embedding, "mean", "self-conditioning")
            self._replace(stack, conditioning, "condition", "self-conditioning")
            yield

    def _replace(self, stack: ExitStack, module: nn.Module, name: str, part: Part) -> None:
        method = getattr(module, name)

        def timed(*args: Any) -> Any:
            with self.within(part):
                return method(*args)

        setattr(module, name, timed)
        stack.callback(delattr, module, name)

    def _enter(self, place: Place, *_inputs: object) -> None:
        self._count()
        self._stack.append(place)

    def _leave(self, *_outputs: object) -> None:
        self._count()
        self._stack.pop()

    def _count(self) -> None:
        self._wait()
        now = time.perf_counter()
        if self._stack:
            self._seconds[self._stack[-1]] += now - self._mark
        self._mark = now


def _modules(network: DiffusionGemma) -> Iterator[tuple[nn.Module, Part, int | None]]:
    yield network, "norms, residuals", None
    for index, layer in enumerate(network.layers):
        attention = layer.get_submodule("self_attn")
        yield layer, "norms, residuals", index
        yield attention, "attention core", index
        for module in projections_of(attention):
            yield module, "attention projections", index
        yield layer.get_submodule("mlp"), "dense MLP", index
        yield layer.get_submodule("router"), "router", index
        yield layer.get_submodule("experts"), "experts", index


def projections_of(owner: nn.Module) -> Iterator[nn.Module]:
    """The modules that compute projections within a part; a fused projection replaces its modules."""
    fused = owner.fused() if isinstance(owner, Projections) else None
    if fused is not None:
        yield fused
    for name, module in owner.named_children():
        if name.endswith("_proj") and (fused is None or module not in fused.parts):
            yield module


def waiter(device: torch.device) -> Callable[[], None]:
    """A function that synchronizes with a device."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: None
