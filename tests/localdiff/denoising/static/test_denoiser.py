"""The static step against the dynamic one, and the fused commit against two passes: whole generations on a small model.

The same code runs on a CPU as on a card, uncaptured; attention, statistics and decision go through torch here, and
through Triton's interpreter in `test_through_triton`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from localdiff.denoising import BlockSettings
from localdiff.denoising.static import steps
from localdiff.denoising.static.reading import read_through_torch
from localdiff.denoising.static.steps import StaticSteps
from localdiff.diffusion.noise import PairedNoise, SeededNoise
from localdiff.diffusion.settings import SamplerSettings
from localdiff.engine import Engine
from localdiff.errors import WeightsError
from localdiff.events import BlockCommitted, DenoiseStep, Event, RunFinished
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import MEAN_ENTROPY, bits_of
from localdiff.model.cache import KVCache
from tests.models import tiny
from tests.models.endless import PROMPT, assert_same, dynamic_events, engine, options
from tests.models.steps import denoiser_of

pytestmark = pytest.mark.usefixtures("attention_in_torch")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def static_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Engine]:
    """One engine for each way; every run reuses the buffers and programs of earlier runs."""

    @cache
    def made(**how: bool) -> Engine:
        return engine(tmp_path_factory.mktemp("tiny"), static=True, **how)

    return made


SHORT_BLOCKS = {"stability": 0, "confidence": 2.0, "max_tokens": 40}
"""Blocks of 2, 3 and 5 steps."""
VALUES = [
    {},
    {"temperature": 0.0},
    SHORT_BLOCKS,
    {"stability": 2, "confidence": 4.0},
    {"confidence": 0.01},
    {"cap": 2},
    {"entropy_bound": 1e39},
    {"record_top_k": 3},
]


@pytest.mark.parametrize(
    ("how", "values"),
    [
        *((how, values) for how in ({}, {"fuses_commits": True}) for values in VALUES),
        *(({"ahead": False}, values) for values in ({}, SHORT_BLOCKS)),
        ({"fuses_commits": True, "projections": True}, {}),
    ],
    ids=str,
)
def test_a_generation_is_the_same_as_with_dynamic_steps(
    static_engine: Callable[..., Engine], how: Any, values: Any
) -> None:
    expected = dynamic_events(**values)
    assert len([event for event in expected if isinstance(event, DenoiseStep)]) > 5
    for _ in range(1 if values else 2):  # the second run reuses the buffers, whichever tests ran before
        assert_same(list(static_engine(**how).generate(PROMPT, options(**values))), expected)


@pytest.mark.parametrize("how", [{}, {"fuses_commits": True}], ids=str)
def test_what_is_recorded_changes_no_bit(tmp_path: Path, how: Any) -> None:
    made = engine(tmp_path, static=True, **how)
    found = []
    for record_top_k in (0, 3, 64, 0):
        steps = [
            event
            for event in made.generate(PROMPT, options(record_top_k=record_top_k))
            if isinstance(event, DenoiseStep)
        ]
        found.append([(event.entropies, event.sampled_ids, event.accepted) for event in steps])
        for event in steps:
            count = min(record_top_k, tiny.VOCAB_SIZE)
            assert {len(ids) for ids in event.top_ids} == ({count} if count else set())
            if count:
                assert tuple(ids[0] for ids in event.top_ids) == event.argmax_ids
                assert tuple(probs[0] for probs in event.top_probs) == event.argmax_probs
    assert all(one == found[0] for one in found)


def test_logits_may_be_read_in_several_blocks_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the full vocabulary: each block has the random numbers of its own rows."""
    monkeypatch.setattr("localdiff.diffusion.reading.MAX_ELEMENTS", 3 * tiny.VOCAB_SIZE)
    assert_same(list(engine(tmp_path, static=True).generate(PROMPT, options())), dynamic_events())


@pytest.mark.parametrize("how", [{}, {"fuses_commits": True}], ids=str)
def test_a_ring_that_fills_up_on_the_way(tmp_path: Path, how: Any) -> None:
    """Empty slots must not be seen; during the first blocks most of the 19 slots are empty."""
    values = options(max_tokens=40)
    expected = list(engine(tmp_path, window=20).generate(PROMPT[:3], values))
    assert_same(list(engine(tmp_path, window=20, static=True, **how).generate(PROMPT[:3], values)), expected)


@pytest.mark.parametrize("record_top_k", [0, 3])
def test_it_really_is_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_top_k: int) -> None:
    made = engine(tmp_path, static=True, fuses_commits=True)
    monkeypatch.setattr(type(made.model), "denoise", None)
    monkeypatch.setattr("localdiff.denoising.denoiser.dynamic_steps", None)
    finished = list(made.generate(PROMPT, options(record_top_k=record_top_k)))[-1]
    assert isinstance(finished, RunFinished)
    assert len(finished.stats.blocks) == 3
    assert finished.stats.commit_passes == 0
    assert str(made.denoiser) == "static step, commit fused, attention in Triton"


@pytest.mark.parametrize("noise", ["seeded", "reference"])
def test_a_fused_commit_is_the_same_as_two_passes(tmp_path: Path, noise: Any) -> None:
    expected = dynamic_events(noise=noise)
    found = list(engine(tmp_path, fuses_commits=True).generate(PROMPT, options(noise=noise)))
    assert_same(found, expected)
    assert isinstance(found[-1], RunFinished) and isinstance(expected[-1], RunFinished)
    assert (found[-1].stats.commit_passes, expected[-1].stats.commit_passes) == (0, 2)


def conversation(fork: int | None, **how: bool) -> list[Event]:
    """The next prompt begins with what was committed, part of which is in the cache; the one after it diverges."""
    with TemporaryDirectory() as directory:
        made = engine(Path(directory), **how)
    prefix_cache = made.new_prefix_cache()
    prefix_cache.fork = fork
    first = list(made.generate(PROMPT, options(), prefix_cache=prefix_cache))
    assert isinstance(first[-1], RunFinished)
    assert len(prefix_cache.ids) == len(PROMPT) + 16
    assert prefix_cache.ids[len(PROMPT) :] == first[-1].token_ids[:16]
    longer = [*PROMPT, *first[-1].token_ids, 11, 12]
    other = [*PROMPT, *first[-1].token_ids[:6], 13, 14]
    then = options(max_tokens=16)
    return [*first, *(e for ids in (longer, other) for e in made.generate(ids, then, prefix_cache=prefix_cache))]


dynamic_conversation = cache(conversation)


@pytest.mark.parametrize(
    ("how", "fork"),
    [
        ({"static": True}, 12),
        ({"fuses_commits": True}, 12),
        *(({"static": True, "fuses_commits": True}, fork) for fork in (None, 12, 19)),
    ],
    ids=str,
)
def test_a_conversation_goes_on_from_what_was_held(how: Any, fork: int | None) -> None:
    assert_same(conversation(fork, **how), dynamic_conversation(fork))


def test_cancelled_in_the_middle_the_context_can_still_be_used(tmp_path: Path) -> None:
    made = engine(tmp_path, static=True, fuses_commits=True)
    prefix_cache = made.new_prefix_cache()
    for event in made.generate(PROMPT, options(), prefix_cache=prefix_cache):
        if isinstance(event, DenoiseStep) and event.block == 2:
            break
    again = list(made.generate(PROMPT, options(), prefix_cache=prefix_cache))
    assert_same(again, dynamic_events())


def test_a_cancelled_block_leaves_the_buffers_at_once(tmp_path: Path) -> None:
    made, cancel = engine(tmp_path, static=True, fuses_commits=True), threading.Event()
    for event in made.generate(PROMPT, options(), cancel=cancel):
        if isinstance(event, DenoiseStep):
            cancel.set()
        if isinstance(event, BlockCommitted | RunFinished):
            assert not made.denoiser._busy.locked()


def test_the_time_of_a_run_is_that_of_its_steps_and_of_what_is_between_them(tmp_path: Path) -> None:
    events = list(engine(tmp_path, static=True, fuses_commits=True).generate(PROMPT, options()))
    steps = [event for event in events if isinstance(event, DenoiseStep)]
    elapsed = [step.elapsed for step in steps]
    assert elapsed == sorted(elapsed)
    assert all(0 < step.seconds <= step.elapsed for step in steps)
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert sum(step.seconds for step in steps) <= elapsed[-1] <= finished.stats.seconds


def test_two_runs_side_by_side_do_not_share_buffers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = [dynamic_events(seed=seed) for seed in (1, 2)]
    made = engine(tmp_path, static=True, fuses_commits=True)
    list(made.generate(PROMPT, options()))
    assert not caplog.records, "one run after the other is no reason for a warning"
    runs = [made.generate(PROMPT, options(seed=seed)) for seed in (1, 2)]
    found: list[list[Event]] = [[], []]
    for events in zip_longest(*runs):
        for into, event in zip(found, events, strict=True):
            into += [event] if event is not None else []
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)
    (warning,) = caplog.messages
    assert warning.startswith("another answer of this model is still being generated")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the static steps that are launched from then on."""
    numbers: list[int] = []

    def counted(owner: StaticSteps, cache: Any, noise: Any, block: Any, step: int, *commit: Any) -> Any:
        numbers.append(step)
        return launch(owner, cache, noise, block, step, *commit)

    launch = StaticSteps._launch
    monkeypatch.setattr(StaticSteps, "_launch", counted)
    return numbers


@pytest.mark.parametrize(("near", "ahead"), [(0.0, True), (steps.NEAR, True), (0.0, False)])
def test_a_step_is_sent_for_nothing_only_where_nothing_told_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: list[int], near: float, ahead: bool
) -> None:
    monkeypatch.setattr(steps, "NEAR", near)
    values = {"stability": 0, "confidence": 1.6}
    found = list(engine(tmp_path, static=True, ahead=ahead).generate(PROMPT, options(**values)))
    assert_same(found, dynamic_events(**values))
    blocks = [event for event in found if isinstance(event, BlockCommitted)]
    converged = sum(1 < block.steps < 6 for block in blocks)
    assert converged
    assert len(launches) == sum(block.steps for block in blocks) + (0 if near or not ahead else converged)


def test_no_step_is_sent_for_nothing_where_any_draft_may_be_the_last(tmp_path: Path, launches: list[int]) -> None:
    made, values = engine(tmp_path, static=True), options(temperature=0.0, entropy_bound=1e9, steps=20, stability=1)
    events = made.generate(PROMPT, values, stop_rule="stable")
    blocks = [event for event in events if isinstance(event, BlockCommitted)]
    assert {block.reason for block in blocks} == {"converged"}
    assert len(launches) == sum(block.steps for block in blocks)


def test_what_does_not_fit_the_cache_is_not_written_into_it(launches: list[int]) -> None:
    network = tiny.model()
    block = BlockSettings(number=1, started=0.0, sampler=SamplerSettings(), stop_rule="both", pad_id=tiny.PAD)
    cache, canvas = KVCache(network.config, 4, torch.float32, CPU), torch.arange(tiny.CANVAS)
    steps = denoiser_of(network, static=True).denoise_block(cache, canvas, SeededNoise(0), block, [9] * 5)
    with pytest.raises(ValueError, match=r"count=5 exceeds self\.capacity=4"):
        next(steps)
    assert cache.length == 0 and not launches


def test_an_event_has_the_mean_entropy_that_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's mean, which may be on the other side of the threshold than one computed from the entropies."""

    def read(logits: Tensor, buffers: StepBuffers, **how: Any) -> Tensor:
        found = read_through_torch(logits, buffers, **how)
        buffers.outcome[MEAN_ENTROPY] = bits_of(7.0)
        return found

    monkeypatch.setattr("localdiff.denoising.denoiser.read_through_torch", read)
    events = list(engine(tmp_path, static=True).generate(PROMPT, options()))
    assert {event.mean_entropy for event in events if isinstance(event, DenoiseStep)} == {7.0}


def test_noise_of_each_step_is_the_same_where_steps_are_sent_ahead_and_read_the_prompt(tmp_path: Path) -> None:
    """The first step of a static run also reads the end of the prompt, before the event that begins the block."""
    expected = list(engine(tmp_path).generate(PROMPT, options(), noise=PairedNoise(5)))
    assert_same(list(engine(tmp_path, static=True).generate(PROMPT, options(), noise=PairedNoise(5))), expected)


def test_other_sources_of_noise_take_dynamic_steps(tmp_path: Path) -> None:
    expected = dynamic_events(noise="reference")
    assert_same(list(engine(tmp_path, static=True).generate(PROMPT, options(noise="reference"))), expected)


def test_logits_that_are_no_numbers_are_an_error() -> None:
    network = tiny.model()
    network.norm.weight.data[0] = torch.nan
    block = BlockSettings(number=2, started=0.0, sampler=SamplerSettings(), stop_rule="both", pad_id=tiny.PAD)
    cache = KVCache(network.config, 64, torch.float32, CPU)
    steps = denoiser_of(network, static=True).denoise_block(cache, torch.arange(tiny.CANVAS), SeededNoise(0), block)
    with pytest.raises(WeightsError, match="the logits of block 2, step 1 are not finite") as raised:
        list(steps)
    assert "`LOCALDIFF_CUDA_PLAIN=all` runs without kernels" in (raised.value.hint or "")
