"""What the host does with a card, on a stand-in for one: loading, recording, replaying, and what it waits for."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest
import torch

from localdiff.bench.step import measure
from localdiff.bench.step.ceilings import measure_ceilings
from localdiff.bench.step.report_text import table
from localdiff.bench.step.run import run
from localdiff.bench.step.subject import real_subject
from localdiff.denoising.static.cuda_graphs import _unmark_generator
from localdiff.denoising.static.exchange import Exchange
from localdiff.doctor.product import PRODUCTS, check_products
from localdiff.doctor.torch_devices import check_devices, devices
from localdiff.engine import Engine, opening
from localdiff.errors import ResourceError
from localdiff.events import BlockCommitted, DenoiseStep, Event
from localdiff.identity import shown_weights
from localdiff.kernels.decision import StepBuffers
from localdiff.load import kernels, open_weights, streaming
from localdiff.load.devices import free_bytes
from localdiff.load.skeleton import Skeleton
from localdiff.model import attention
from localdiff.options import GenerateOptions
from quant.codecs import CODECS
from quant.cuda import switches
from quant.cuda.experts import CudaExperts
from quant.cuda.fused_projections import StackedCudaLinear
from quant.jobs.shard import _encode
from tests.checkpoints.layouts import Spec, write_checkpoint
from tests.checkpoints.quantized import quantize
from tests.fakes.attention import patched
from tests.gpu.kernels import needs_interpreter
from tests.gpu.queue import Queue

pytestmark = [needs_interpreter, pytest.mark.filterwarnings("ignore:divide by zero")]

SPEC = Spec(mlp=64, expert_mlp=64, head_dim=32, settings={"eos_token_id": [1]})
PROMPT = [3, 14, 15, 9, 26, 5]
CONTEXT = 96
OPTIONS = GenerateOptions(seed=5, max_tokens=16, cap=3, confidence=1e-9, context_size=CONTEXT)
"""Two blocks of three steps: no step is confident."""
CARD = torch.device("cuda", 0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plain = write_checkpoint(SPEC, tmp_path_factory.mktemp("plain"))
    return quantize(plain, tmp_path_factory.mktemp("made") / "4bit", "4bit")


@pytest.fixture(scope="module")
def queue() -> Iterator[Queue]:
    from tests.gpu.host import card

    # Attention as a GPU has it in 16 bits, whose products the interpreter gets wrong.
    with card() as made, patched(), mock.patch.object(kernels, "can_attend", lambda *_: True):
        yield made


@pytest.fixture(scope="module")
def engine(directory: Path, queue: Queue) -> Engine:
    """The model on the card, without kernels between matmuls, which would take most of the interpreter's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
        return Engine.load(directory, device="cuda", dtype="fp32", context_size=CONTEXT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One answer.

    Attributes:
        drafts: the draft of each step.
        waits: what the host waited for before each step of a block except its first, since the step before.
    """

    drafts: list[tuple[int, ...]]
    ids: list[int]
    waits: list[list[str]]


def answered(events: Iterator[Event], queue: Queue) -> Turn:
    drafts, ids, waits, before = [], [], [], 0
    for event in events:
        if isinstance(event, DenoiseStep):
            drafts.append(event.argmax_ids)
            if event.step > 1:
                waits.append(queue.waits[before:])
            before = len(queue.waits)
        elif isinstance(event, BlockCommitted):
            ids += event.token_ids
    return Turn(drafts=drafts, ids=ids, waits=waits)


def conversation(engine: Engine, queue: Queue, length: int = 2) -> list[Turn]:
    """That many turns over one cache."""
    prefix_cache, ids, turns = engine.new_prefix_cache(), PROMPT, []
    for _ in range(length):
        turns.append(answered(engine.generate(ids, OPTIONS, prefix_cache=prefix_cache), queue))
        ids = [*ids, *turns[-1].ids, 11, 12]
    return turns


def without_waits(turns: Sequence[Turn]) -> list[tuple[list[tuple[int, ...]], list[int]]]:
    return [(turn.drafts, turn.ids) for turn in turns]


@pytest.fixture(scope="module")
def expected(directory: Path, queue: Queue) -> list[Turn]:
    return conversation(Engine.load(directory, device="cpu", dtype="fp32", context_size=CONTEXT), queue)


@pytest.mark.slow
def test_two_turns_are_those_of_the_plain_path(engine: Engine, expected: list[Turn], queue: Queue) -> None:
    assert engine.denoiser.path.captured and engine.denoiser.path.static
    assert engine.identity.device == "cuda:0"
    before = len(queue.recorder.graphs)
    found = conversation(engine, queue)
    assert without_waits(found) == without_waits(expected)
    assert [len(turn.drafts) for turn in found] == [6, 6]
    made = queue.recorder.graphs[before:]
    assert [graph.replays for graph in made] == [7, 1], "a step, and one with a commit; what ran first was no replay"
    assert found[0].waits == [["synchronize", "event"], *[["event"]] * 3], "before it is recorded, and for outcomes"
    assert found[1].waits == [["event"]] * 4, "for a step's outcome, and for nothing else"
    again = conversation(engine, queue, 1)
    assert without_waits(again) == without_waits(expected[:1])
    assert all(graph.is_reset for graph in made), "they read and write the first cache"


@pytest.mark.slow
def test_layers_that_are_streamed_compute_what_those_that_stay_do(
    directory: Path, expected: list[Turn], queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    demand = Skeleton.of(open_weights(directory), torch.float32).demand(CARD, CONTEXT)
    budget = demand.account.total - 1
    engine = Engine.load(directory, device="cuda", dtype="fp32", context_size=CONTEXT, max_memory=budget)
    assert str(engine.denoiser) == "static step, logits in Triton, commit fused, attention in Triton"
    layers = engine.model.layers
    assert [type(layer.experts) for layer in layers] == [CudaExperts] * 2
    assert len({layer.experts.weights()[0].untyped_storage().data_ptr() for layer in layers}) == 1, "one place"
    found = conversation(engine, queue)
    assert without_waits(found) == without_waits(expected)
    assert found[1].waits == [["event"]] * 4, "for a step's outcome, and for no copy"


@pytest.mark.slow
def test_layers_are_streamed_beside_layers_that_stay(
    tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card would refuse a copy over a layer that computes, and a layer that computes before its copy is done."""
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    plain = write_checkpoint(replace(SPEC, layers="sfsf"), tmp_path / "plain")
    directory = quantize(plain, tmp_path / "4bit", "4bit")
    expected = conversation(Engine.load(directory, device="cpu", dtype="fp32", context_size=CONTEXT), queue, 1)
    demand = Skeleton.of(open_weights(directory), torch.float32).demand(CARD, CONTEXT)
    budget = demand.account.total - min(layer.weights for layer in demand.layers)
    engine = Engine.load(directory, device="cuda", dtype="fp32", context_size=CONTEXT, max_memory=budget)
    places = [layer.experts.weights()[0].untyped_storage().data_ptr() for layer in engine.model.layers]
    assert len(set(places)) == 3 and places[2] == places[3], "two of four layers take turns"
    assert without_waits(conversation(engine, queue, 1)) == without_waits(expected)


@pytest.mark.slow
def test_activations_are_rounded_where_they_are_asked_to_be(
    directory: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    engine = Engine.load(directory, device="cuda", dtype="fp32", activations="int8", context_size=CONTEXT)
    layers = engine.model.layers
    assert {layer.experts.activations for layer in layers} == {"a8"} == {engine.model.embed_tokens.head.activations}
    assert shown_weights(engine.identity) == "4bit weights, fp32 with int8 activations on cuda:0"
    turn = answered(engine.generate(PROMPT, replace(OPTIONS, max_tokens=8)), queue)
    assert len(turn.drafts) == 3 and len(turn.ids) == 8


@pytest.mark.slow
@pytest.mark.parametrize("loads", [1, 2], ids=["in place", "loaded again"])
def test_without_the_kernels_that_fail_while_a_model_loads_answers_are_the_same(
    loads: int,
    directory: Path,
    expected: list[Turn],
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("out of resource: shared memory")

    made, load_model = list[object](), opening.load_model
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    monkeypatch.setattr(switches, "_given_up", set())
    monkeypatch.setattr(attention, "attend_rows", fails)
    monkeypatch.setattr(StackedCudaLinear, "gated", fails)
    monkeypatch.setattr(opening, "load_model", lambda *a, **b: made.append(a) or load_model(*a, **b))
    monkeypatch.setattr(opening, "release_cached_memory", gc.collect)
    if loads > 1:
        monkeypatch.setattr(CudaExperts, "gated", fails)
    engine = Engine.load(directory, device="cuda", dtype="fp32", context_size=CONTEXT)
    assert len(made) == loads and switches.given_up() == [*["experts"] * (loads - 1), "attention", "projections"]
    assert len(caplog.messages) == loads + 2
    assert str(engine.denoiser) == "dynamic step, commit fused"
    assert without_waits(conversation(engine, queue, 1)) == without_waits(expected[:1])


@pytest.mark.slow
def test_a_step_that_cannot_be_recorded_is_launched_kernel_by_kernel(
    engine: Engine,
    expected: list[Turn],
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = engine.model
    mean = network.mean_embedding

    def asks(probs: torch.Tensor) -> torch.Tensor:
        assert probs.max().item() <= 1
        return mean(probs)

    monkeypatch.setattr(network, "mean_embedding", asks)
    monkeypatch.setattr(engine.denoiser, "_static", engine.denoiser._static_steps())
    assert without_waits(conversation(engine, queue, 1)) == without_waits(expected[:1])
    assert "(operation not permitted when stream is capturing)" in caplog.text
    assert not engine.denoiser.path_taken.captured
    assert queue.recorder.graphs[-1].replays == 0
    queue.recorder.assert_idle()


@pytest.mark.slow
def test_a_step_is_measured(directory: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """`localdiff bench step`, whose clock waits for the card between any two parts."""
    from tests.gpu.host import NAME

    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    for name, few in (("WARM_UP_REPLAYED", 2), ("CLOCKED", 1), ("COMMITS", 1)):
        monkeypatch.setattr(measure, name, few)
    ceilings_of = partial(measure_ceilings, copy_bytes=1 << 10, largest=512)
    make = real_subject(model=str(directory), revision=None, offline=True, context=16, device="cuda", dtype="fp32")
    report = run(context=16, steps=1, make=make, ceilings_of=ceilings_of)
    assert str(report.subject.device) == "cuda:0" and report.hardware == NAME
    paths = {part.part: part.path for part in report.parts}
    assert paths["attention core"] == "Triton, fp32" and "grouped, Triton" in paths["experts"]
    assert "CUDA graph" in paths["sampling"]
    assert report.fused is not None and "at most on the device" in table(report)


def test_the_doctor_sees_the_card(queue: Queue) -> None:
    """It computes layers there, as loaded and with kernels, whose bf16 products the interpreter gets wrong."""
    from tests.gpu.host import CAPABILITY, NAME

    (finding,) = check_devices(devices(), gpus=1)
    assert (
        finding.status == "ok" and f"`auto` is cuda:0 ({NAME}, compute {CAPABILITY[0]}.{CAPABILITY[1]})" in finding.text
    )
    (layers,) = check_products(CARD)
    assert [detail.partition(": ")[0] for detail in layers.details] == [
        product.name for product in PRODUCTS for _ in ("plain", "fast")
    ]
    assert all("Triton" in detail for detail in layers.details[1::2])


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal sends no signals there")
def test_ctrl_c_reaches_no_compiler_in_dynamic_steps(
    directory: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They launch kernels, too, if experts or linear layers have any."""
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "all")
    engine = Engine.load(directory, device="cuda", dtype="fp32", context_size=CONTEXT)
    assert not engine.denoiser.path.static
    denoise, inside, between = engine.model.denoise, [], []

    def is_blocked() -> bool:
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def noted(*arguments: Any) -> torch.Tensor:
        inside.append(is_blocked())
        return denoise(*arguments)

    monkeypatch.setattr(engine.model, "denoise", noted)
    for _ in engine.generate(PROMPT, OPTIONS):
        between.append(is_blocked())
    assert inside and all(inside) and not any(between)


@pytest.mark.parametrize("codec", CODECS)
def test_weights_are_quantized_on_the_card(codec: str, queue: Queue) -> None:
    """The encoded weights are on the host, and equal those made there."""
    weight = torch.randn(6, 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    (found, *measured), (expected, *right) = (_encode(codec, device, weight) for device in (CARD, torch.device("cpu")))
    assert found.codes.is_cpu and found.scales.is_cpu and measured == right
    assert torch.equal(found.codes, expected.codes) and torch.equal(found.scales, expected.scales)


def test_what_the_allocator_was_told_not_to_take_is_not_free(directory: Path, queue: Queue) -> None:
    total = torch.cuda.get_device_properties(CARD).total_memory
    torch.cuda.set_per_process_memory_fraction(1e6 / total, CARD)
    try:
        assert free_bytes(CARD) == pytest.approx(1e6, abs=1)
        with pytest.raises(ResourceError):
            Engine.load(directory, device="cuda:0", context_size=CONTEXT)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, CARD)


class TestTheCard:
    """The stand-in refuses what a card refuses, and hides what has not arrived yet."""

    def test_tensors_of_two_devices(self, queue: Queue) -> None:
        there, here = torch.arange(3.0, device="cuda"), torch.arange(3.0)
        assert there.device == (there + 1).device == there[:1].device == CARD and here.device.type == "cpu"
        assert (there * torch.tensor(2.0)).tolist() == [0, 2, 4]
        for work in (lambda: there + here, lambda: torch.stack([here, there]), lambda: here[there.long()]):
            with pytest.raises(RuntimeError, match="same device"):
                work()

    def test_a_kernel_over_a_tensor_of_the_host(self, queue: Queue) -> None:
        from quant.cuda.rows import quantize_groups

        with pytest.raises(ValueError, match="cpu tensor"):
            quantize_groups(torch.ones(1, 128))
        assert quantize_groups(torch.ones(1, 128, device="cuda")).codes.device == CARD

    def test_an_outcome_arrives_with_its_event(self, queue: Queue) -> None:
        buffers = StepBuffers(4, 8, torch.float32, CARD)
        exchange = Exchange(buffers)
        buffers.outcome.fill_(7)
        exchange.ask(1)
        assert not (exchange._outcomes[1] == 7).any()
        assert (exchange.take(1) == 7).all()

    def test_streams_wait_for_each_other_where_one_copies_to_what_the_other_uses(self, queue: Queue) -> None:
        memory, host = torch.zeros(8, device="cuda"), torch.zeros(8, pin_memory=True)
        ours, other = queue.stream, torch.cuda.Stream(CARD)
        memory.record_stream(other)

        def copy() -> None:
            with torch.cuda.stream(other):
                memory.copy_(host, non_blocking=True)

        with pytest.raises(AssertionError, match="while another stream uses it"):
            copy()
        other.wait_stream(ours)
        copy()
        with pytest.raises(AssertionError, match="while another stream uses it"):
            memory.add_(1)
        ours.wait_stream(other)
        memory.add_(1)
        with pytest.raises(AssertionError, match="while another stream uses it"):
            copy()

    def test_memory_is_copied_to_by_the_stream_that_it_was_made_for_or_lent_to(self, queue: Queue) -> None:
        memory, other = torch.zeros(8, device="cuda"), torch.cuda.Stream(CARD)
        other.wait_stream(queue.stream)
        with torch.cuda.stream(other), pytest.raises(AssertionError, match="may give this memory to others"):
            memory.copy_(torch.zeros(8, pin_memory=True), non_blocking=True)

    def test_an_event_says_nothing_of_another_stream(self, queue: Queue) -> None:
        numbers, host = torch.ones(8, device="cuda"), torch.zeros(8, pin_memory=True)
        host.copy_(numbers, non_blocking=True)
        event, other = torch.cuda.Event(), torch.cuda.Stream(CARD)
        event.record(other)
        event.synchronize()
        assert not (host == 1).any()
        other.wait_stream(queue.stream)
        event.record(other)
        event.synchronize()
        assert (host == 1).all()

    def test_what_is_sent_stays_until_it_was_read(self, queue: Queue) -> None:
        exchange = Exchange(StepBuffers(4, 8, torch.float32, CARD))
        fresh = torch.arange(4)
        for step in (1, 2):
            exchange.send(step, [step] * 8, None, fresh)
        exchange.send(3, [3] * 8, None, fresh)  # into the memory of the first send
        with pytest.raises(AssertionError, match="while it was being copied"):
            torch.cuda.synchronize()

    def test_nothing_waits_while_it_is_recorded(self, queue: Queue) -> None:
        numbers = torch.ones(2, device="cuda")
        waiting = (
            lambda: numbers.tolist(),
            lambda: numbers.cpu(),
            lambda: numbers.copy_(torch.ones(2)),
            lambda: numbers[numbers > 0],
            lambda: torch.ones(2).to("cuda"),
            torch.cuda.synchronize,
            torch.cuda.Event().record,
        )
        for work in waiting:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
            with pytest.raises(RuntimeError, match="not permitted"):
                work()
            with pytest.raises(RuntimeError, match="previous error"):
                graph.capture_end()
            torch._C._cuda_endAllocateToPool(0, graph.used_pool)
        _unmark_generator()
