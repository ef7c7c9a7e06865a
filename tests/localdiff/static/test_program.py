"""What is run, what is replayed, and what becomes of a step that cannot be recorded; the card is a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from localdiff.model.cache import KVCache
from localdiff.static.program import Recorded, bucket_of
from tests import tiny


class Graph:
    """Counts replays."""

    def __init__(self) -> None:
        self.replays = 0
        made.append(self)

    def replay(self) -> None:
        self.replays += 1


made: list[Graph] = []


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> KVCache:
    made.clear()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    return KVCache(tiny.config(), 8, torch.float32, torch.device("cpu"))


def test_the_first_run_counts_and_later_ones_are_replays(monkeypatch: pytest.MonkeyPatch, cache: KVCache) -> None:
    recording: list[bool] = []

    @contextmanager
    def graph(*_: object, **__: object) -> Iterator[None]:
        recording.append(True)
        yield
        recording.append(False)

    monkeypatch.setattr(torch.cuda, "graph", graph)
    ran: list[bool] = []
    work = Recorded(lambda _: ran.append(bool(recording) and recording[-1]), pool=object())
    work(cache)
    assert not (made or work.is_recorded), "what is run once is not recorded"
    for _ in range(2):
        work(cache)
    assert ran == [False, True], "once for its result, once to be recorded"
    assert [graph.replays for graph in made] == [2] and work.is_recorded


def test_what_cannot_be_recorded_is_run_every_time(
    monkeypatch: pytest.MonkeyPatch, cache: KVCache, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def graph(*_: object, **__: object) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(torch.cuda, "graph", graph)
    ran: list[int] = []
    work = Recorded(lambda _: ran.append(1), pool=object())
    with caplog.at_level(logging.WARNING, logger="localdiff"):
        for _ in range(3):
            work(cache)
    assert len(ran) == 4 and not work.is_recorded
    assert caplog.messages == [
        "a denoise step could not be recorded as a CUDA graph (operation not permitted when stream is capturing)"
    ]


@pytest.mark.parametrize(
    ("length", "capacity", "bucket"), [(0, 9000, 256), (256, 9000, 256), (257, 9000, 512), (8000, 8100, 8100)]
)
def test_buckets_are_powers_of_two_within_what_there_is(length: int, capacity: int, bucket: int) -> None:
    assert bucket_of(length, capacity) == bucket
