"""Layers that are streamed to a stand-in card, on which copies have a stream of their own.

The card refuses a copy to memory that another stream may still be using, and work that uses the memory too early.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from localdiff.load import streaming
from tests.gpu.kernels import needs_interpreter
from tests.gpu.queue import Queue

pytestmark = needs_interpreter

CARD = torch.device("cuda", 0)


@pytest.fixture
def queue() -> Iterator[Queue]:
    """A card for each test: it tells memory apart by address, and addresses of an earlier test are used again."""
    from tests.gpu.host import card

    with card() as made:
        yield made


class Doubled(nn.Module):
    """A layer with one weight."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((1024,), number, device=CARD))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x + self.weight


@pytest.fixture(autouse=True)
def everything_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)


def streamed(layers: Sequence[nn.Module]) -> streaming.LayerStream:
    """Streams the last two of these layers."""
    stream = streaming.LayerStream(CARD)
    for layer in layers[-2:]:
        stream.hold(layer)
    stream.start(layers[0])
    return stream


def test_memory_that_is_locked_is_not_worth_a_word(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    streamed([Doubled(number) for number in range(3)])
    assert not caplog.records


def test_the_first_copy_runs_beside_the_layers_that_stay(queue: Queue) -> None:
    layers = [Doubled(number) for number in range(4)]
    under_way, lengths = [], []
    stays = layers[1].forward

    def noted(x: torch.Tensor) -> torch.Tensor:
        copies: Any = stream._copies
        under_way.append(copies.launched > queue.stream.behind.get(copies, 0))
        return stays(x)

    layers[1].forward = noted  # type: ignore[method-assign]
    stream = streamed(layers)
    for _ in range(3):
        before, x = queue.copies, torch.zeros(1024, device=CARD)
        for layer in layers:
            x = layer(x)
        lengths.append(queue.copies - before)
        assert set(x.tolist()) == {2 * (2 * (2 * 0 + 1) + 2) + 3}
    assert under_way == [True] * 3, "a copy has begun that the layers which stay do not wait for"
    assert lengths == [2] * 3, "each layer is copied once in each pass"


def test_no_layer_is_copied_over_one_that_is_read(queue: Queue) -> None:
    """Whatever the order of passes; passes of two threads may alternate, and each may have a stream of its own."""
    layers = [Doubled(number) for number in range(4)]
    streamed(layers)
    x = torch.zeros(1024, device=CARD)
    streams = [queue.stream, torch.cuda.Stream(CARD)]
    drawn = random.Random(0)
    for _ in range(100):
        layer = drawn.randrange(4)
        with torch.cuda.stream(drawn.choice(streams)):
            found = layers[layer](x)
        assert set(found.tolist()) == {layer}


def test_a_pass_that_fails_is_waited_for(queue: Queue) -> None:
    layers = [Doubled(number) for number in range(3)]
    stays, fails, follows = layers
    passes = fails.forward

    def failing(x: torch.Tensor) -> torch.Tensor:
        passes(x)
        raise KeyboardInterrupt

    fails.forward = failing  # type: ignore[method-assign]
    streamed(layers)
    x = torch.zeros(1024, device=CARD)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fails(stays(x))
        assert set(follows(x).tolist()) == {2}
    assert queue.stream is queue.first, "the current stream is the one that was"


def test_memory_that_cannot_be_locked_is_said(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Queue, "pin", mock.Mock(side_effect=RuntimeError("CUDA error: out of memory")))
    layers = [Doubled(number) for number in range(3)]
    streamed(layers)
    assert caplog.text.count("locks no more host memory") == 1
    for _ in range(2):
        assert set(layers[2](layers[1](layers[0](torch.zeros(1024, device=CARD)))).tolist()) == {4}


def test_the_last_memory_that_can_be_locked_is_left_to_others(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """WSL2 locks about a gigabyte: if layers took all of it, a step's buffers would find no room."""
    pin, asked = Queue.pin, []

    def refuse_first(queue: Queue, memory: torch.Tensor) -> None:
        asked.append(memory)
        if len(asked) == 1:
            raise RuntimeError("CUDA error: out of memory")
        pin(queue, memory)

    monkeypatch.setattr(Queue, "pin", refuse_first)
    layers = [Doubled(number) for number in range(4)]
    streamed(layers)
    assert len(asked) == 1, "of two layers"
    assert set(layers[3](layers[1](torch.zeros(1024, device=CARD))).tolist()) == {5}


def test_where_the_first_layer_is_streamed_it_waits_for_its_copy(queue: Queue) -> None:
    layers = [Doubled(number) for number in range(2)]
    streamed(layers)
    for _ in range(2):
        assert set(layers[1](layers[0](torch.zeros(1024, device=CARD))).tolist()) == {1}
