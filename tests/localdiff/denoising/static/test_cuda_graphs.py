"""What a capture leaves behind, whole, broken or interrupted; the card is a stand-in."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import pytest
import torch

from localdiff.denoising.static import cuda_graphs
from localdiff.denoising.static.cuda_graphs import GraphCapturer
from tests.gpu.graphs import Graph, Recorder
from tests.gpu.kernels import needs_triton

pytestmark = needs_triton

CARD = torch.device("cuda", 1)


@pytest.fixture
def graphs() -> Iterator[list[Any]]:
    from tests.gpu.graphs import imitated

    with imitated() as made:
        yield made


def test_the_stand_in_reaches_no_allocator(graphs: list[Any]) -> None:
    """A real card's allocator takes only its own pools; anything else is a TypeError."""
    with pytest.raises(RuntimeError, match="not currently recording"):
        torch._C._cuda_endAllocateToPool(1, torch.cuda.graph_pool_handle())


def test_the_end_of_a_recording_may_be_what_fails(graphs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    def end(graph: Graph) -> None:
        end_of(graph)
        raise RuntimeError("CUDA error: out of memory\nand more")

    end_of = Graph.capture_end
    with mock.patch.object(Graph, "capture_end", end):
        assert GraphCapturer(CARD).capture(lambda: None) is None
    assert "(CUDA error: out of memory)" in caplog.text
    assert graphs[0].is_reset


def test_what_could_not_be_captured_for_one_cache_says_nothing_of_the_next(graphs: list[Any]) -> None:
    def work() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    capturer = GraphCapturer(CARD)
    assert capturer.capture(work) is None and capturer.has_failed
    capturer.forget()
    assert not capturer.has_failed
    assert capturer.capture(lambda: None) is graphs[-1]


@pytest.mark.parametrize("error", [RuntimeError("no such thing"), KeyboardInterrupt("by hand")], ids=type)
@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("version", ["2.11", "2.12", "2.13.0", "2.14"])
def test_a_recording_that_broke_off_leaves_the_allocator_and_the_next_one_alone(
    graphs: list[Any],
    error: BaseException,
    is_broken: bool,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ending a recording fails if a card has refused something in it.

    After that the allocator goes on recording up to torch 2.12, and the generator up to 2.11; 2.13.0 keeps the pool's
    memory, and later versions free it in `reset`.
    """
    is_told, marks = version in ("2.13.0", "2.14"), version == "2.11"
    monkeypatch.setattr(Recorder, "is_told_of_broken_ones", is_told)
    monkeypatch.setattr(Recorder, "marks_generator", marks)
    monkeypatch.setattr(cuda_graphs, "_MARKS_GENERATOR", marks)
    monkeypatch.setattr(cuda_graphs, "_KEEPS_MEMORY", version == "2.13.0")
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
    broken = graphs[0]
    assert broken.is_reset is not (is_broken and not is_told), "torch may still point at a graph that broke"
    assert broken.card.released == [broken.used_pool] * (is_broken and version != "2.14")
    broken.card.assert_idle()
    assert capturer.capture(lambda: None) is graphs[-1]
    assert graphs[-1].used_pool is not broken.used_pool


def test_what_was_captured_before_is_replayed_after_a_recording_that_broke_off(graphs: list[Any]) -> None:
    """Up to torch 2.11 its replay may fail, too: it shares the generator that the broken recording has left marked."""
    number = torch.ones(1)

    def whole() -> None:
        number.add_(1)

    def broken() -> None:
        number.item()

    capturer = GraphCapturer(CARD)
    graph = capturer.capture(whole)
    assert graph is not None and capturer.capture(broken) is None
    graph.replay()
    assert number == 2


def test_a_card_that_captures_nothing_any_more_is_told_so_once(
    graphs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The first error counts, not the one from the attempt to let the generator draw again."""

    def begin(graph: Graph, **how: Any) -> None:
        raise RuntimeError(f"CUDA error: broken, {len(graphs)} graphs")

    with mock.patch.object(Graph, "capture_begin", begin):
        assert GraphCapturer(CARD).capture(lambda: None) is None
    assert "(CUDA error: broken, 1 graphs)" in caplog.text and len(graphs) == 2


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
    """Both are Python functions, in which Ctrl-C may come before or after the card is told."""
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
    assert capturer.capture(lambda: None) is graphs[-1]


def test_it_records_on_its_card_and_comes_back_to_the_stream_it_came_from(graphs: list[Any]) -> None:
    """Without a named card torch takes the current one."""
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

    make = torch.cuda.CUDAGraph

    def graph() -> Any:
        inside.append(("graph", None))
        return make()

    with mock.patch.multiple(
        torch.cuda,
        Stream=lambda device: f"own stream of {device}",
        current_stream=lambda device: f"current stream of {device}",
        device=lambda device: entered("device", device),
        stream=lambda stream: entered("stream", stream),
        synchronize=lambda: inside.append(("synchronize", None)),
        CUDAGraph=graph,
    ):
        assert GraphCapturer(CARD).capture(work) is None
    assert inside == [
        ("device", CARD),
        ("stream", "current stream of cuda:1"),
        ("stream", "own stream of cuda:1"),
        ("synchronize", None),
        ("graph", None),
        ("work", None),
        ("graph", None),  # an empty one, for the generator of this card
        ("left stream", "own stream of cuda:1"),
        ("left stream", "current stream of cuda:1"),
        ("left device", CARD),
    ]


def test_threads_record_one_after_the_other(graphs: list[Any]) -> None:
    """Each waits for the card before it begins; that would break another thread's recording."""
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
    def work() -> None:
        number.add_(1)

    capturer = GraphCapturer(CARD)
    number = torch.zeros(1)
    for _ in range(2):
        assert capturer.capture(work) is not None
        capturer.forget()
        capturer.forget()
    assert [graph.is_reset for graph in graphs] == [True, True]
    assert graphs[0].used_pool is not graphs[1].used_pool


@pytest.mark.parametrize("is_enabled", [True, False], ids=["enabled", "disabled"])
def test_no_garbage_is_collected_during_a_recording(graphs: list[Any], is_enabled: bool) -> None:
    """A graph of another model may be collected, and freeing it would break the recording."""

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            destroyed.append(len(graphs))

    def work() -> None:
        Garbage()
        assert [[] for _ in range(1000)]  # enough allocations to make Python collect
        assert not destroyed
        raise RuntimeError("broke off")

    destroyed: list[int] = []
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    (gc.enable if is_enabled else gc.disable)()
    try:
        assert GraphCapturer(CARD).capture(work) is None
        assert gc.isenabled() is is_enabled
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    gc.collect()
    assert destroyed
