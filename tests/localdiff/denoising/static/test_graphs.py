"""Whole generations with recorded steps against dynamic ones, using the stand-in for graphs of `tests.gpu.graphs`."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.denoising.static.program import Program
from localdiff.diffusion.noise import SeededNoise
from localdiff.engine import Engine
from localdiff.events import DenoiseStep, RunFinished
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda import soft
from tests.gpu.kernels import needs_interpreter
from tests.localdiff.bench.step.small import small_subject
from tests.models import tiny
from tests.models.all_experts import AllExperts
from tests.models.endless import PROMPT, assert_same, dynamic_events, engine, options
from tests.models.steps import block_of, denoiser_of

pytestmark = needs_interpreter
attends_in_torch = pytest.mark.usefixtures("attention_in_torch")

CPU = torch.device("cpu")


def recorded(directory: Path, **how: Any) -> Engine:
    made = engine(directory, static=True, captured=True, **how)
    for layer in made.model.layers:
        layer.experts = AllExperts(layer.experts)
    return made


VALUES = [{}, {"temperature": 0.0}, {"stability": 2, "confidence": 4.0}, {"cap": 2}, {"record_top_k": 3}]


@pytest.fixture
def graphs(caplog: pytest.LogCaptureFixture) -> Iterator[list[Any]]:
    """Graphs that were recorded; a step that could not be recorded fails the test."""
    from tests.gpu.graphs import imitated

    with imitated() as made:
        yield made
    assert "could not be captured" not in caplog.text
    assert sum(graph.replays for graph in made) > 0


@attends_in_torch
@pytest.mark.parametrize(
    ("how", "values"),
    [
        *(({"fuses_commits": True, "projections": True}, values) for values in VALUES),
        *((how, values) for how in ({}, {"ahead": False}) for values in ({}, {"record_top_k": 3})),
    ],
    ids=str,
)
def test_a_generation_is_the_same_as_with_dynamic_steps(
    tmp_path: Path, how: Any, values: Any, graphs: list[Any]
) -> None:
    expected = dynamic_events(**values)
    assert_same(list(recorded(tmp_path, **how).generate(PROMPT, options(**values))), expected)


@attends_in_torch
@pytest.mark.parametrize("how", [pytest.param({}, marks=pytest.mark.slow), {"fuses_commits": True}], ids=str)
def test_a_conversation_goes_on_with_what_was_recorded(tmp_path: Path, how: Any, graphs: list[Any]) -> None:
    """Longer prompts, and one that diverges from the cached one, over one cache and the same recordings."""
    plain, ours = engine(tmp_path), recorded(tmp_path, **how)
    prefix_caches = [made.new_prefix_cache() for made in (plain, ours)]
    ids, counts = PROMPT, []
    for fork in (None, len(PROMPT) + 6, None):
        found = []
        for made, prefix_cache in zip((plain, ours), prefix_caches, strict=True):
            prefix_cache.fork = fork
            found.append(list(made.generate(ids, options(), prefix_cache=prefix_cache)))
        assert_same(found[1], found[0])
        finished = found[0][-1]
        assert isinstance(finished, RunFinished)
        ids = [*ids, *finished.token_ids[:9], 11, 12]
        counts.append(len(graphs))
    assert counts[0] == counts[2], "nothing is recorded twice"


def test_all_kernels_recorded(tmp_path: Path, graphs: list[Any]) -> None:
    values = options(max_tokens=20, cap=2)  # three blocks; the interpreter is slow
    how = dict.fromkeys(("logits", "attention", "layer_ops", "projections", "fuses_commits"), True)
    expected = list(engine(tmp_path).generate(PROMPT[-5:], values))
    assert_same(list(recorded(tmp_path, **how).generate(PROMPT[-5:], values)), expected)
    assert len(graphs) == 2, "a step, and one with a commit"


@attends_in_torch
def test_what_was_recorded_over_another_cache_is_given_up_at_once(tmp_path: Path, graphs: list[Any]) -> None:
    """So are the programs, which hold tensors: not only when garbage is collected."""
    made = recorded(tmp_path, fuses_commits=True)
    list(made.generate(PROMPT, options(), prefix_cache=made.new_prefix_cache()))
    gc.collect()  # imports of a process's first step leave garbage that refers to the recording
    gc.disable()
    try:
        first = [*graphs]
        programs = [weakref.ref(program) for program in made.denoiser._static._programs.values()]
        assert first and programs and not any(graph.is_reset for graph in first)
        kept = {shape.commit_rows for shape in made.denoiser._static._programs}
        assert kept == {0, tiny.CANVAS}, "none for the end of this prompt"
        list(made.generate(PROMPT, options(), prefix_cache=made.new_prefix_cache()))
        assert all(graph.is_reset for graph in first)
        assert not any(program() for program in programs)
        assert {graph.used_pool for graph in first}.isdisjoint(graph.used_pool for graph in graphs[len(first) :])
        assert made.denoiser.graphs
        made.denoiser.forget_graphs()
        assert all(graph.is_reset for graph in graphs) and not made.denoiser.graphs
    finally:
        gc.enable()


@attends_in_torch
def test_no_program_is_left_without_its_graph_where_that_is_cut_short(
    tmp_path: Path, graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recorded(tmp_path, fuses_commits=True)
    prefix_cache, steps = made.new_prefix_cache(), made.denoiser._static
    list(made.generate(PROMPT, options(), prefix_cache=prefix_cache))
    forget = steps._capturer.forget

    def cut_short() -> None:
        forget()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(steps._capturer, "forget", cut_short)
        list(made.generate(PROMPT, options(), prefix_cache=made.new_prefix_cache()))
    before = len(graphs)
    again = list(made.generate(PROMPT, options(), prefix_cache=prefix_cache))
    assert isinstance(again[-1], RunFinished) and len(graphs) > before, "recorded anew"


@attends_in_torch
def test_the_end_of_a_prompt_leaves_no_program_behind(monkeypatch: pytest.MonkeyPatch, graphs: list[Any]) -> None:
    made: list[weakref.ref[Program]] = []

    def program(*args: Any, **kwargs: Any) -> Program:
        kept = Program(*args, **kwargs)
        made.append(weakref.ref(kept))
        return kept

    monkeypatch.setattr("localdiff.denoising.static.steps.Program", program)
    monkeypatch.setattr(soft, "CAPACITY", 1)
    network = small_subject("4bit").network
    for layer in network.layers:
        layer.experts = AllExperts(decoded(layer.get_submodule("experts")))
    gc.disable()
    try:
        found = blocks(network, ends=[[3, 4, 5], [6, 7]], sparse=True, captured=True)
        assert len(found) == 8
        assert len(made) == 3
        assert not any(ref() for ref in made)
    finally:
        gc.enable()


@attends_in_torch
def test_a_run_that_was_left_in_the_middle_is_spoken_of(
    tmp_path: Path, graphs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = recorded(tmp_path)
    left = made.generate(PROMPT, options())
    for event in left:
        if isinstance(event, DenoiseStep) and event.step == 3:
            break
    expected = dynamic_events()
    for _ in range(2):
        assert_same(list(made.generate(PROMPT, options())), expected)
    assert caplog.text.count("or was left unfinished") == 1
    left.close()
    assert_same(list(made.generate(PROMPT, options())), expected)
    assert caplog.text.count("or was left unfinished") == 1


@attends_in_torch
@pytest.mark.parametrize("capacity", [1, soft.CAPACITY])
def test_sparse_self_conditioning_is_made_exact_from_the_first_step_on(
    capacity: int, monkeypatch: pytest.MonkeyPatch, graphs: list[Any]
) -> None:
    """With room for one id per row every step overflows; what a recording has not computed yet must not be used."""
    monkeypatch.setattr(soft, "CAPACITY", capacity)
    network = small_subject("4bit").network
    for layer in network.layers:
        layer.experts = AllExperts(decoded(layer.get_submodule("experts")))
    assert_same(blocks(network, sparse=True, captured=True), blocks(network))


def test_what_the_host_decides_is_captured_for_good(graphs: list[Any]) -> None:
    """As on a card, a number of the host's keeps its value from the recording; one of the device's is read anew."""
    there, out = torch.zeros(1), torch.zeros(2)
    numbers = iter(range(1, 9))

    def work() -> None:
        out[0] = there[0] + 1
        out[1].fill_(next(numbers))

    graph, results = GraphCapturer(CPU).capture(work), []
    assert graph is not None
    for number in range(3):
        there.fill_(number)
        graph.replay()
        results.append(out.tolist())
    assert results == [[1, 1], [2, 1], [3, 1]]


def test_what_a_card_refuses_to_record_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    from tests.gpu.graphs import imitated

    out = torch.zeros(1)

    def ask() -> None:
        out.add_(out.nonzero().shape[0] + 1)

    with imitated(), caplog.at_level(logging.WARNING, logger="localdiff"):
        assert GraphCapturer(CPU).capture(ask) is None
    assert out.item() == 0
    assert "could not be captured" in caplog.text


def blocks(network: DiffusionGemma, *, ends: Sequence[Sequence[int]] = ((), ()), **how: bool) -> list[DenoiseStep]:
    """The steps of two blocks over one cache, each after the end of a prompt."""
    length = network.config.canvas_length
    cache = KVCache(network.config, 64, torch.float32, CPU)
    block = block_of(4)
    denoiser, noise = denoiser_of(network, static=True, **how), SeededNoise(0)
    canvases = torch.arange(length), torch.arange(length).flip(0)
    return [
        step.event
        for canvas, end in zip(canvases, ends, strict=True)
        for step in denoiser.denoise_block(cache, canvas, noise, block, end)
    ]


def decoded(experts: Any) -> SimpleNamespace:
    """Quantized experts, decoded for `AllExperts`."""
    names = "gate_up_proj", "down_proj"
    return SimpleNamespace(**{name: getattr(experts, name).decode(torch.float32) for name in names})
