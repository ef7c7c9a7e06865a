"""A small model computes on one thread, no model on more than a container allows, and nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from localdiff.load import threads
from localdiff.load.threads import SMALL, limit_threads
from tests.fakes.threads import torch_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "_taken", [])
    monkeypatch.setattr(threads, "core_quota", lambda: 4)
    with torch_threads(2):
        yield


def test_a_small_model_on_a_processor_gets_one_thread() -> None:
    limit_threads(SMALL - 1, CPU, {})
    assert torch.get_num_threads() == 1


def test_a_large_one_after_it_has_all_threads_again() -> None:
    for _ in range(2):
        limit_threads(SMALL - 1, CPU, {})
    limit_threads(SMALL, CPU, {})
    assert torch.get_num_threads() == 2


def test_what_was_set_since_stays() -> None:
    limit_threads(SMALL - 1, CPU, {})
    torch.set_num_threads(3)
    limit_threads(SMALL, CPU, {})
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("weights", "device", "env"),
    [
        (SMALL, CPU, {}),
        (1000, torch.device("cuda:0"), {}),
        (1000, CPU, {"OMP_NUM_THREADS": "2"}),
    ],
)
def test_a_large_one_a_card_and_a_wish_change_nothing(weights: int, device: torch.device, env: dict[str, str]) -> None:
    limit_threads(weights, device, env)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("device", [CPU, torch.device("cuda:0")])
def test_a_container_with_less_time_than_cores_has_fewer_threads(device: torch.device) -> None:
    torch.set_num_threads(64)
    limit_threads(SMALL, device, {"OMP_NUM_THREADS": "64"})
    assert torch.get_num_threads() == 64
    limit_threads(SMALL, device, {})
    assert torch.get_num_threads() == 4


def test_it_has_no_more_of_them_after_a_small_model() -> None:
    torch.set_num_threads(64)
    for weights in (SMALL - 1, SMALL):
        limit_threads(weights, CPU, {})
    assert torch.get_num_threads() == 4


def test_without_a_container_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if `OMP_PROC_BIND` binds the asking thread to one core, and each other thread to its own."""
    monkeypatch.setattr(threads, "core_quota", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    torch.set_num_threads(64)
    limit_threads(SMALL, CPU, {})
    assert torch.get_num_threads() == 64
