"""How many threads share a call, and that no size of work makes threads of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quant.cpu.native.calls import thread_count
from tests.fakes.threads import torch_threads


@pytest.fixture
def twenty() -> Iterator[None]:
    with torch_threads(20):
        yield


def test_threads_are_all_or_a_power_of_two(twenty: None) -> None:
    asked = [0, 1, 2, 3, 4, 7, 8, 15, 16, 19, 20, 21, 1000]
    assert [thread_count(count) for count in asked] == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 20, 20, 20]


def test_there_are_few_pools_of_threads(twenty: None) -> None:
    assert len({thread_count(count) for count in range(1, 5000)}) == 6
