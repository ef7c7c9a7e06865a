"""When a program runs its step, when it captures it and when it replays it, with a stand-in for the card."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import read_through_torch
from localdiff.kernels.decision import StepBuffers
from localdiff.model.cache import KVCache
from tests.gpu.kernels import needs_triton
from tests.models import tiny

pytestmark = needs_triton

CPU, CARD = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def graphs() -> Iterator[list[Any]]:
    from tests.gpu.graphs import imitated

    with imitated() as made:
        yield made


@pytest.fixture
def program_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Program]:
    """Makes a program with this function as its step."""

    def make(step: Callable[[], object], capturer: GraphCapturer | None) -> Program:
        model = tiny.model()
        buffers = StepBuffers(tiny.CANVAS, model.config.hidden_size, torch.float32, CPU)
        shape = Shape(commit_rows=0, sampled=True)
        program = Program(model, buffers, shape, read=read_through_torch, capturer=capturer)
        monkeypatch.setattr(program, "_step", lambda _: step())
        return program

    return make


@pytest.fixture
def cache() -> KVCache:
    return KVCache(tiny.config(), 16, torch.float32, CPU)


def test_the_first_run_counts_and_later_ones_are_replays(
    program_of: Callable[..., Program], cache: KVCache, graphs: list[Any]
) -> None:
    steps: list[str] = []
    number = torch.zeros(1)

    def add() -> None:
        steps.append("run")
        number.add_(1)

    program = program_of(add, GraphCapturer(CARD))
    program.run(cache)
    assert not graphs, "what is run once is not captured"
    for _ in range(2):
        program.run(cache)
    assert len(steps) == 2, "once for its result, once to be captured"
    assert [graph.replays for graph in graphs] == [2]
    assert number.item() == 3


def test_without_a_capturer_it_is_run_every_time(
    program_of: Callable[..., Program], cache: KVCache, graphs: list[Any]
) -> None:
    number = torch.zeros(1)
    program = program_of(lambda: number.add_(1), None)
    for _ in range(3):
        program.run(cache)
    assert number.item() == 3 and not graphs


def test_what_cannot_be_captured_is_run_every_time(
    program_of: Callable[..., Program], cache: KVCache, graphs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning has only the first error, not that of ending the broken capture, and only one line of it."""
    steps: list[int] = []
    number = torch.ones(1)
    program = program_of(lambda: steps.append(int(number.nonzero().sum() + 1)), GraphCapturer(CARD))
    with caplog.at_level(logging.WARNING, logger="localdiff"):
        for _ in range(3):
            program.run(cache)
    assert len(steps) == 3
    assert caplog.messages == [
        "a denoise step could not be captured as a CUDA graph (operation not permitted when stream is capturing)"
    ]
