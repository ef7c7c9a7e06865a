"""Rows by expert: the right numbers, and nothing counted while a step is being timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from localdiff.bench.step.measure import Routing
from localdiff.model.diffusion_gemma import DiffusionGemma


class Router(nn.Module):
    """Sends rows to given experts."""

    def __init__(self, index: list[list[int]]) -> None:
        super().__init__()
        self._index = torch.tensor(index)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self._index, torch.ones(self._index.shape)


def network(*chosen: list[list[int]]) -> Any:
    layers = [nn.ModuleDict({"router": Router(index)}) for index in chosen]
    return SimpleNamespace(layers=layers, config=SimpleNamespace(num_experts=4))


def test_rows_are_counted_after_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = network([[0, 1], [0, 2], [0, 3]], [[1, 2], [1, 2], [2, 1]])
    routing = Routing(cast(DiffusionGemma, watched))

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("counted while a pass may be on the clock")

    with routing.watching(), monkeypatch.context() as patch:
        patch.setattr(torch, "bincount", refuse)
        patch.setattr(Tensor, "cpu", refuse)
        for layer in watched.layers:
            layer["router"]()
    for layer in watched.layers:
        layer["router"]()
    assert routing.experts_hit == pytest.approx(6 / 8), "four experts of the first layer and two of the second"
    assert routing.busiest == 3
