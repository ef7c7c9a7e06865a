"""What is run, what is replayed, and what becomes of a step that cannot be recorded; the card is a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch

from localdiff.static.recording import Recorded, Recorder
from tests.gpu.kernels import needs_triton

pytestmark = needs_triton

CARD = torch.device("cuda", 1)


@pytest.fixture
def graphs() -> Iterator[list[Any]]:
    from tests.gpu.graphs import imitated

    with imitated() as made:
        yield made


def test_the_first_run_counts_and_later_ones_are_replays(graphs: list[Any]) -> None:
    ran: list[str] = []
    number, work = torch.zeros(1), Recorded(Recorder(CARD))

    def add() -> None:
        ran.append("run")
        number.add_(1)

    work(add)
    assert not (graphs or work.is_recorded), "what is run once is not recorded"
    for _ in range(2):
        work(add)
    assert len(ran) == 2, "once for its result, once to be recorded"
    assert [graph.replays for graph in graphs] == [2] and work.is_recorded
    assert number.item() == 3


def test_without_a_recorder_it_is_run_every_time(graphs: list[Any]) -> None:
    number, work = torch.zeros(1), Recorded(None)
    for _ in range(3):
        work(lambda: number.add_(1))  # type: ignore[arg-type, return-value]
    assert number.item() == 3 and not graphs


def test_the_stand_in_reaches_no_allocator(graphs: list[Any]) -> None:
    """That of a real card takes pools of its own alone, and anything else is a TypeError."""
    with pytest.raises(RuntimeError, match="not currently recording"):
        torch._C._cuda_endAllocateToPool(1, torch.cuda.graph_pool_handle())


def test_what_cannot_be_recorded_is_run_every_time(graphs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    @contextmanager
    def graph(*_: object, **__: object) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    ran: list[int] = []
    work = Recorded(Recorder(CARD))
    with mock.patch.object(torch.cuda, "graph", graph), caplog.at_level(logging.WARNING, logger="localdiff"):
        for _ in range(3):
            work(lambda: ran.append(1))
    assert len(ran) == 4 and not work.is_recorded
    assert caplog.messages == [
        "a denoise step could not be captured as a CUDA graph (operation not permitted when stream is capturing)"
    ]


@pytest.mark.parametrize("error", [RuntimeError("operation not permitted"), KeyboardInterrupt()], ids=type)
@pytest.mark.parametrize("ends", [True, False], ids=["torch ends it", "torch does not"])
def test_a_recording_that_broke_off_leaves_the_allocator_and_the_next_one_alone(
    graphs: list[Any], error: BaseException, ends: bool
) -> None:
    """Torch's own ending of a recording fails where a card refused something, and the allocator goes on recording."""
    allocator: list[tuple[str, int, object]] = []

    def end(device: int, pool: object) -> None:
        if ends:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        allocator.append(("end", device, pool))

    def release(device: int, pool: object) -> None:
        allocator.append(("release", device, pool))

    def interrupted() -> None:
        raise error

    recorder = Recorder(CARD)
    with (
        mock.patch.object(torch._C, "_cuda_endAllocateToPool", end),
        mock.patch.object(torch._C, "_cuda_releasePool", release),
    ):
        if isinstance(error, RuntimeError):
            assert recorder.record(interrupted) is None
        else:
            with pytest.raises(KeyboardInterrupt):
                recorder.record(interrupted)
    broken, pool = graphs[0], graphs[0].pool
    assert broken.is_reset is ends
    assert allocator == ([] if ends else [("end", 1, pool), ("release", 1, pool)])
    assert recorder.record(lambda: None) is graphs[1]
    assert graphs[1].pool is not pool


def test_it_records_on_its_card_and_comes_back_to_the_stream_it_came_from(graphs: list[Any]) -> None:
    """Torch stays on the stream of a recording that broke off, and takes the current card where none is named."""
    inside: list[tuple[str, object]] = []

    @contextmanager
    def entered(kind: str, value: object) -> Iterator[None]:
        inside.append((kind, value))
        try:
            yield
        finally:
            inside.append((f"left {kind}", value))

    @contextmanager
    def graph(_: object, *, stream: object, **__: object) -> Iterator[None]:
        inside.append(("graph on", stream))
        yield
        raise RuntimeError("broke off")

    with mock.patch.multiple(
        torch.cuda,
        Stream=lambda device: f"own stream of {device}",
        current_stream=lambda device: f"current stream of {device}",
        device=lambda device: entered("device", device),
        stream=lambda stream: entered("stream", stream),
        graph=graph,
    ):
        assert Recorder(CARD).record(lambda: None) is None
    assert inside == [
        ("device", CARD),
        ("stream", "current stream of cuda:1"),
        ("graph on", "own stream of cuda:1"),
        ("left stream", "current stream of cuda:1"),
        ("left device", CARD),
    ]


def test_forgotten_recordings_are_given_up_and_their_memory_is_not_used_again(graphs: list[Any]) -> None:
    recorder = Recorder(CARD)
    number = torch.zeros(1)
    for _ in range(2):
        work = Recorded(recorder)
        for _ in range(2):
            work(lambda: number.add_(1))  # type: ignore[arg-type, return-value]
        recorder.forget()
        recorder.forget()
    assert [graph.is_reset for graph in graphs] == [True, True]
    assert graphs[0].pool is not graphs[1].pool
