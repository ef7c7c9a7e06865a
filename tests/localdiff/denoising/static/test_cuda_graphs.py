"""What is run, what is replayed, and what becomes of a step that cannot be recorded; the card is a stand-in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import pytest
import torch

from localdiff.denoising.static.cuda_graphs import CapturedWork, GraphCapturer
from tests.gpu.graphs import Graph
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
    number, work = torch.zeros(1), CapturedWork(GraphCapturer(CARD))

    def add() -> None:
        ran.append("run")
        number.add_(1)

    work(add)
    assert not (graphs or work.is_captured), "what is run once is not recorded"
    for _ in range(2):
        work(add)
    assert len(ran) == 2, "once for its result, once to be recorded"
    assert [graph.replays for graph in graphs] == [2] and work.is_captured
    assert number.item() == 3


def test_without_a_capturer_it_is_run_every_time(graphs: list[Any]) -> None:
    number, work = torch.zeros(1), CapturedWork(None)
    for _ in range(3):
        work(lambda: number.add_(1))  # type: ignore[arg-type, return-value]
    assert number.item() == 3 and not graphs


def test_the_stand_in_reaches_no_allocator(graphs: list[Any]) -> None:
    """That of a real card takes pools of its own alone, and anything else is a TypeError."""
    with pytest.raises(RuntimeError, match="not currently recording"):
        torch._C._cuda_endAllocateToPool(1, torch.cuda.graph_pool_handle())


def test_what_cannot_be_recorded_is_run_every_time(graphs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """What is told is what came first, not what the end of a broken recording says, and one line of it."""
    ran: list[int] = []
    number = torch.ones(1)

    def ask() -> None:
        ran.append(int(number.nonzero().sum() + 1))

    work = CapturedWork(GraphCapturer(CARD))
    with caplog.at_level(logging.WARNING, logger="localdiff"):
        for _ in range(3):
            work(ask)
    assert len(ran) == 3 and not work.is_captured
    assert caplog.messages == [
        "a denoise step could not be captured as a CUDA graph (operation not permitted when stream is capturing)"
    ]


def test_the_end_of_a_recording_may_be_what_fails(graphs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    def end(graph: Graph) -> None:
        end_of(graph)
        raise RuntimeError("CUDA error: out of memory\nand more")

    end_of = Graph.capture_end
    with mock.patch.object(Graph, "capture_end", end):
        assert GraphCapturer(CARD).capture(lambda: None) is None
    assert "(CUDA error: out of memory)" in caplog.text
    assert graphs[0].is_reset


@pytest.mark.parametrize("error", [RuntimeError("no such thing"), KeyboardInterrupt("by hand")], ids=type)
@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
def test_a_recording_that_broke_off_leaves_the_allocator_and_the_next_one_alone(
    graphs: list[Any], error: BaseException, is_broken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a recording fails where a card refused something before, and then the allocator goes on recording."""
    number = torch.ones(1)

    def interrupted() -> None:
        if is_broken:
            with suppress(RuntimeError):
                number.item()
        raise error

    capturer = GraphCapturer(CARD)
    if isinstance(error, RuntimeError):
        assert capturer.capture(interrupted) is None
        assert "no such thing" in caplog.text
    else:
        with pytest.raises(KeyboardInterrupt, match="by hand"):
            capturer.capture(interrupted)
    (broken,) = graphs
    assert broken.is_reset is not is_broken, "torch may still point at a graph that broke"
    assert broken.card.released == [broken.pool] * is_broken
    broken.card.assert_idle()
    assert capturer.capture(lambda: None) is graphs[1]
    assert graphs[1].pool is not broken.pool


@pytest.mark.parametrize(
    ("where", "is_told", "error"),
    [
        ("capture_begin", False, None),
        ("capture_begin", True, None),
        ("capture_end", False, None),
        ("capture_end", True, None),
        ("capture_end", True, RuntimeError("no such thing")),
    ],
)
def test_an_interrupt_at_either_end_gets_through(
    graphs: list[Any], where: str, is_told: bool, error: Exception | None
) -> None:
    """Both are functions of Python, in which Ctrl-C may come before the card is told, or after it."""
    interrupts = [KeyboardInterrupt("by hand")]
    told = getattr(Graph, where)

    def interrupted(graph: Graph, **how: Any) -> None:
        if not interrupts or is_told:
            told(graph, **how)
        if interrupts:
            raise interrupts.pop()

    def work() -> None:
        if error is not None:
            raise error

    capturer = GraphCapturer(CARD)
    with mock.patch.object(Graph, where, interrupted), pytest.raises(KeyboardInterrupt, match="by hand"):
        capturer.capture(work)
    graphs[0].card.assert_idle()
    assert not capturer.has_failed
    assert capturer.capture(lambda: None) is graphs[1]


def test_it_records_on_its_card_and_comes_back_to_the_stream_it_came_from(graphs: list[Any]) -> None:
    """Torch takes the current card where none is named."""
    inside: list[tuple[str, object]] = []

    @contextmanager
    def entered(kind: str, value: object) -> Iterator[None]:
        inside.append((kind, value))
        try:
            yield
        finally:
            inside.append((f"left {kind}", value))

    def work() -> None:
        inside.append(("work", None))
        raise RuntimeError("broke off")

    with mock.patch.multiple(
        torch.cuda,
        Stream=lambda device: f"own stream of {device}",
        current_stream=lambda device: f"current stream of {device}",
        device=lambda device: entered("device", device),
        stream=lambda stream: entered("stream", stream),
        synchronize=lambda: inside.append(("synchronize", None)),
    ):
        assert GraphCapturer(CARD).capture(work) is None
    assert inside == [
        ("device", CARD),
        ("stream", "current stream of cuda:1"),
        ("stream", "own stream of cuda:1"),
        ("synchronize", None),
        ("work", None),
        ("left stream", "own stream of cuda:1"),
        ("left stream", "current stream of cuda:1"),
        ("left device", CARD),
    ]


def test_threads_record_one_after_the_other(graphs: list[Any]) -> None:
    """Each waits for the card before it begins, which would break what another has begun."""
    other, found = GraphCapturer(CARD), list[object]()
    thread = threading.Thread(target=lambda: found.append(other.capture(lambda: None)))

    def work() -> None:
        thread.start()
        thread.join(0.1)
        assert thread.is_alive() and not found

    assert GraphCapturer(CARD).capture(work) is graphs[0]
    thread.join()
    assert found == [graphs[1]] and not other.has_failed


def test_forgotten_recordings_are_given_up_and_their_memory_is_not_used_again(graphs: list[Any]) -> None:
    capturer = GraphCapturer(CARD)
    number = torch.zeros(1)
    for _ in range(2):
        work = CapturedWork(capturer)
        for _ in range(2):
            work(lambda: number.add_(1))  # type: ignore[arg-type, return-value]
        capturer.forget()
        capturer.forget()
    assert [graph.is_reset for graph in graphs] == [True, True]
    assert graphs[0].pool is not graphs[1].pool
