"""The clock of work on a card, with a stand-in for the card."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from tests.bench import gpu_clock
from tests.gpu.kernels import needs_interpreter

pytestmark = needs_interpreter


class Event:
    """An event of a card on which everything takes 2 µs."""

    def __init__(self, **_: bool) -> None:
        """Remembers nothing."""

    def record(self) -> None:
        """Counts as reached at once."""

    def elapsed_time(self, _: Event) -> float:
        return 0.002


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    from tests.gpu.graphs import imitated

    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, device, **how: empty(*size, **how))
    monkeypatch.setattr(gpu_clock, "FLUSHED", 1)
    monkeypatch.setattr(gpu_clock, "WARM_SECONDS", 0)
    gpu_clock._capturer.cache_clear()
    with imitated() as made, mock.patch.multiple(torch.cuda, Event=Event, current_device=lambda: 0):
        yield made
    gpu_clock._capturer.cache_clear()


def test_work_is_recorded_and_replayed(graphs: list[Any]) -> None:
    number = torch.zeros(1)
    taken = gpu_clock.clocked(lambda: number.add_(1), repeats=5)
    assert (taken.median, taken.low, taken.high) == pytest.approx((2, 2, 2))
    assert str(taken) == "      2.0 µs (2.0 to 2.0)"
    assert number.item() == 3 + 5
    assert [graph.replays for graph in graphs] == [5] and graphs[0].is_reset


def test_a_card_is_busy_for_a_while_before_anything_is_timed(
    graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle card runs at a fraction of its clock rate: fifty runs of 100 µs would be over before it rises."""
    seconds = itertools.count(step=0.1)
    monkeypatch.setattr(gpu_clock, "WARM_SECONDS", 0.35)
    monkeypatch.setattr(gpu_clock, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    gpu_clock.clocked(lambda: torch.zeros(1), repeats=5)
    assert [graph.replays for graph in graphs] == [3 * gpu_clock._AT_ONCE + 5]


def test_what_cannot_be_recorded_is_run_and_keeps_nothing_else_from_being_recorded(graphs: list[Any]) -> None:
    """After a recording that failed, torch's allocator and generator go on recording unless told to stop."""
    number = torch.ones(1)
    gpu_clock.clocked(lambda: number.nonzero(), repeats=5)
    assert graphs[0].card.released == [graphs[0].used_pool]
    gpu_clock.clocked(lambda: number.add_(1), repeats=5)
    assert [graph.replays for graph in graphs] == [0, 0, 5]  # the second one is for the generator
