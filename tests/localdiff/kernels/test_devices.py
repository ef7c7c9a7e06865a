"""Triton launches on the current device, so whatever launches a kernel makes that of its tensors the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from localdiff.diffusion.reading import LogitStatistics
from localdiff.kernels.attention import attend_rows, write_cached
from localdiff.kernels.decision import decide
from localdiff.kernels.decision_layout import CONTROLS, outcome_size
from localdiff.kernels.logits import process, statistics
from tests.gpu.kernels import needs_triton

pytestmark = needs_triton

NOWHERE = torch.device("meta")
L, V = 4, 64
ROWS = torch.empty(1, L, 16, device=NOWHERE)
CACHE: dict[str, Any] = {
    "keys": torch.empty(1, 8, 16, device=NOWHERE),
    "values": torch.empty(1, 8, 16, device=NOWHERE),
    "length": torch.empty((), dtype=torch.int32, device=NOWHERE),
    "commit_rows": 2,
}


def floats(*shape: int) -> Tensor:
    return torch.empty(shape, device=NOWHERE)


def ids(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int32, device=NOWHERE)


def take_decision() -> None:
    stats = LogitStatistics(
        entropy=floats(L), argmax=ids(L), argmax_prob=floats(L), sampled=ids(L), log_normalizer=floats(L)
    )
    state = {"fresh": ids(L), "canvas": ids(L), "draft": ids(L), "streak": ids(1), "outcome": ids(outcome_size(L))}
    decide(ids(CONTROLS), stats, **state)


@pytest.mark.parametrize(
    ("launch", "kernels"),
    [
        (lambda: statistics(floats(L, V), softcap=None, temperature=floats(1), uniforms=None), 2),
        (lambda: process(floats(L, V), softcap=None, temperature=floats(1)), 1),
        (lambda: process(floats(L, V), softcap=None, temperature=floats(1), log_normalizer=floats(L)), 1),
        (take_decision, 1),
        (lambda: attend_rows(ROWS, ROWS, ROWS, **CACHE, window=None, splits=2), 2),
        (lambda: write_cached(ROWS, ROWS, **CACHE), 1),
    ],
    ids=["statistics", "process", "process_to_probabilities", "decide", "attend_rows", "write_cached"],
)
def test_kernels_are_launched_on_the_device_of_their_tensors(launch: Callable[[], object], kernels: int) -> None:
    from tests.gpu.graphs import kernel_classes

    current: list[torch.device] = []
    launched_on: list[list[torch.device]] = []

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        current.append(tensor.device)
        yield
        current.pop()

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(torch.cuda, "device_of", device_of))
        for kind in kernel_classes():
            patches.enter_context(mock.patch.object(kind, "run", lambda *_, **__: launched_on.append([*current])))
        launch()
    assert launched_on == [[NOWHERE]] * kernels
