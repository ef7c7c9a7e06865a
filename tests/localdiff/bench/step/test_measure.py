"""The whole measurement on small models: what runs, in which order, and what it leaves."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch

from localdiff.bench.step import measure
from localdiff.bench.step.measure import CLOCKED, COMMITS, PREFILLS, WARM_UP, Stopwatch, _median_pass
from localdiff.bench.step.parts import PARTS, Place
from localdiff.bench.step.report_text import table
from localdiff.bench.step.run import run
from localdiff.bench.step.subject import Make, Subject
from localdiff.denoising import Denoiser, denoiser
from localdiff.denoising.dynamic import dynamic_steps
from localdiff.denoising.static.reading import read_through_torch
from localdiff.diffusion.noise import SeededNoise
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.sizes import shown_time
from quant.recipe import RECIPES
from tests.gpu.kernels import needs_triton
from tests.localdiff.bench.step.small import CANVAS, CEILINGS, small_subject
from tests.models.steps import block_of, denoiser_of

pytestmark = pytest.mark.usefixtures("attention_in_torch")

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("recipe", "dtype"), [*((recipe, "fp32") for recipe in RECIPES), ("bf16", "bf16"), ("4bit", "bf16")]
)
def test_a_small_model_is_measured(recipe: str, dtype: str) -> None:
    told: list[str] = []

    def make(progress: Callable[[str], None]) -> Subject:
        progress("making")
        return small_subject(recipe, dtype=dtype, layers=7)

    report = run(
        context=16,
        steps=3,
        make=Make(CPU, make),
        ceilings_of=lambda device: CEILINGS,
        progress=told.append,
    )
    assert len(report.measured.seconds) == 3
    assert report.step > 0 and report.commit > 0 and report.prefill > 0
    assert all(part.seconds > 0 and part.floor > 0 for part in report.parts)
    assert report.measured.experts_hit > 0.5
    assert report.measured.mean_entropy > 0
    assert f"recipe {recipe}, {dtype} on cpu" in table(report)
    assert told[0].startswith("measuring") and told[1] == "making"
    assert f"step {WARM_UP + 3 + CLOCKED} of {WARM_UP + 3 + CLOCKED}" in told


def test_context_longer_than_a_window_and_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localdiff.bench.step.measure.PREFILL_CHUNK", 8)
    monkeypatch.setattr("localdiff.bench.step.measure.PREFILL_SECONDS", math.inf)
    subject, told = small_subject(), list[str]()
    stopwatch = Stopwatch(subject, context=20, progress=told.append)
    timings = stopwatch.measure(1)
    chunks = [f"prefill, {start} of 20 tokens" for start in (0, 8, 16)] * (PREFILLS + 1)
    assert [line for line in told if line.startswith("prefill") and "layer" not in line] == chunks
    layers = [f"{chunk}, layer {number} of 4" for chunk in chunks for number in range(1, 5)]
    assert [line for line in told if line.startswith("prefill") and "layer" in line] == layers
    assert not any("layer" in line for line in told[told.index("step 1 of 6") :]), "only there may a pass take minutes"
    assert len(timings.prefills) == PREFILLS and len(timings.steps.seconds) == 1
    assert stopwatch.cache.length == 20


@pytest.mark.parametrize(("layers", "built"), [(4, " with 4 layers"), (7, "")])
def test_where_a_step_takes_seconds_the_time_left_is_told(
    monkeypatch: pytest.MonkeyPatch, layers: int, built: str
) -> None:
    told: list[str] = []
    stopwatch = Stopwatch(small_subject(layers=layers), context=8, progress=told.append)
    now = itertools.count(step=10.0)  # each look at the clock is ten seconds after the last
    monkeypatch.setattr("localdiff.bench.step.measure.time.perf_counter", lambda: next(now))
    stopwatch.measure(2)
    steps = [line for line in told if line.startswith("step ")]
    assert steps[:3] == ["step 1 of 7", "step 2 of 7", "step 3 of 7"], "what is not counted yet is no measure"
    told_of = re.fullmatch(rf"step 4 of 7, (\d+)\.0 s each{built}, (\w+) left", steps[3])
    assert told_of is not None
    assert told_of[2] == shown_time(10 * int(told_of[1])), "four steps and six commit passes"
    commits = [line for line in told if line.startswith("commit pass ")]
    assert commits[:2] == ["commit pass 1 of 6", f"commit pass 2 of 6, 10.0 s each{built}, 50s left"]


@pytest.mark.parametrize(
    ("took", "counted"),
    [
        ([9.0], [9.0]),
        ([3.0, 2.5], [3.0, 2.5]),
        ([3.0, 1.0, 1.5], [1.0, 1.5]),
        ([0.4] + [0.2] * PREFILLS, [0.2] * PREFILLS),
    ],
)
def test_a_context_is_read_several_times_where_that_takes_seconds(
    monkeypatch: pytest.MonkeyPatch, took: list[float], counted: list[float]
) -> None:
    """A single time says nothing about its spread; and the first on a GPU comes after it had waited for a compiler."""
    stopwatch = Stopwatch(small_subject(), context=16)
    times, before = iter(took), list[int]()

    def timed(work: Callable[[], None]) -> float:
        before.append(stopwatch.cache.length)
        work()
        return next(times)

    monkeypatch.setattr(stopwatch, "_seconds_of", timed)
    assert stopwatch._prefills() == tuple(counted)
    assert before == [0] * len(took), "each is read into an empty cache"
    assert stopwatch.cache.length == 16 and next(times, None) is None


def test_every_number_of_rows_is_warmed_up_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for a GPU are compiled and tuned when a number of rows first occurs."""
    monkeypatch.setattr("localdiff.bench.step.measure.PREFILL_CHUNK", 16)
    subject = small_subject()
    stopwatch = Stopwatch(subject, context=37)
    passes: list[tuple[bool, int]] = []
    is_timed = False

    def encode(ids: torch.Tensor, cache: KVCache) -> None:
        passes.append((is_timed, len(ids)))
        DiffusionGemma.encode(subject.network, ids, cache)

    def timed(work: Callable[[], None]) -> float:
        nonlocal is_timed
        is_timed = True
        work()
        is_timed = False
        return 1.0

    monkeypatch.setattr(subject.network, "encode", encode)
    monkeypatch.setattr(stopwatch, "_seconds_of", timed)
    stopwatch.measure(1)
    measured = [length for was_timed, length in passes if was_timed]
    assert measured[:3] == [16, 16, 5]
    warmed_up = list(itertools.takewhile(lambda entry: not entry[0], passes))
    assert {length for _, length in warmed_up} == set(measured), "the passes that commit a block included"


FUSING = [{"fuses_commits": True}, {"static": True, "fuses_commits": True}]


def stopwatch_with(context: int = 16, **how: bool) -> Stopwatch:
    """A stopwatch whose steps are computed in a way that this device would not choose."""
    subject = small_subject()
    return Stopwatch(dataclasses.replace(subject, denoiser=denoiser_of(subject.network, **how)), context=context)


@pytest.mark.parametrize("how", FUSING, ids=str)
def test_first_steps_that_commit_are_timed_where_a_run_has_them(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, bool]
) -> None:
    stopwatch = stopwatch_with(**how)
    denoise_block, committed = Denoiser.denoise_block, list[tuple[int, int, int]]()

    def watched(self: Denoiser, cache: KVCache, canvas: Any, noise: Any, block: Any, commit_ids: Any) -> Any:
        before, steps = cache.length, 0
        for step in denoise_block(self, cache, canvas, noise, block, commit_ids):
            steps += 1
            yield step
        committed.append((len(commit_ids), cache.length - before, steps))

    monkeypatch.setattr(Denoiser, "denoise_block", watched)
    fused = stopwatch.measure(1).fused
    assert fused is not None
    assert len(fused.seconds) == COMMITS and min(fused.seconds) > 0
    assert {part for part, _ in fused.places} == set(PARTS)
    assert [block for block in committed if block[0]] == [(CANVAS, CANVAS, 1)] * (WARM_UP + 2 * COMMITS)
    assert stopwatch.cache.length == 16


def test_where_a_run_commits_in_passes_of_their_own_there_are_no_fused_steps() -> None:
    assert stopwatch_with().measure(1).fused is None
    assert stopwatch_with(static=True).measure(1).fused is None


@pytest.mark.parametrize("how", [{}, {"static": True}], ids=str)
def test_every_part_of_a_step_is_clocked_whichever_way_it_is_computed(how: dict[str, bool]) -> None:
    places = stopwatch_with(**how).measure(1).steps.places
    assert {part for part, _ in places} == set(PARTS)
    assert places["norms, residuals", None] > 0, "what lies outside of the layers"


@pytest.mark.parametrize("how", [{}, {"static": True}], ids=str)
def test_a_step_is_computed_each_time_that_the_clock_of_parts_runs(
    how: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[list[dict[Place, float]]] = []

    def median(passes: list[dict[Place, float]]) -> dict[Place, float]:
        kinds.append(passes)
        return _median_pass(passes)

    monkeypatch.setattr(measure, "_median_pass", median)
    stopwatch_with(**how).measure(1)
    assert [("experts", 0) in places for places in kinds[0]] == [True] * CLOCKED


@needs_triton
def test_clocked_steps_are_computed_as_the_timed_ones_but_for_the_recording() -> None:
    from tests.gpu.graphs import imitated

    network = small_subject().network
    how = {"static": True, "logits": True, "attention": True, "fuses_commits": True, "sparse": True}
    with imitated():
        timed = denoiser_of(network, captured=True, **how)
    assert str(timed.path) == "static step, CUDA graph, logits in Triton, commit fused, sparse self-conditioning"
    clocked = timed.without_graphs()
    assert str(clocked.path) == str(timed.path).replace(", CUDA graph", "")
    assert timed.path.ahead and not clocked.path.ahead
    plain = Denoiser(network)
    assert plain.without_graphs() is plain


@needs_triton
def test_replayed_steps_are_warmed_up_for_longer_and_what_was_not_recorded_is_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU idles while a step is recorded; and these experts, which wait for the host, cannot be recorded."""
    from tests.gpu.graphs import imitated

    told: list[str] = []
    monkeypatch.setattr(measure, "WARM_UP_REPLAYED", 5)
    with imitated() as graphs:
        stopwatch = stopwatch_with(static=True, captured=True)
        stopwatch._progress = told.append
        assert "CUDA graph" in str(stopwatch.denoiser.path_taken)
        timings = stopwatch.measure(1)
    assert len(timings.steps.seconds) == 1 and f"step 1 of {5 + 1 + CLOCKED}" in told
    assert graphs and not any(graph.replays for graph in graphs)
    assert str(stopwatch.denoiser) == "static step, attention in Triton"


def test_clocked_steps_are_read_as_the_timed_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def through_triton(*arguments: Any, **how: Any) -> torch.Tensor:
        read.append(1)
        return read_through_torch(*arguments, **how)

    monkeypatch.setattr(denoiser, "read_through_triton", through_triton)
    monkeypatch.setattr(denoiser, "read_through_torch", lambda *_, **__: pytest.fail("not the reading of a run"))
    stopwatch_with(static=True, logits=True).measure(2)
    assert len(read) == WARM_UP + 2 + 2 + CLOCKED, "the first two steps of the clocked block are not on the clock"


def test_the_timed_steps_are_those_of_an_answer() -> None:
    """The clock runs over the computation of `dynamic_steps`: the same noise, on the way to as many steps."""
    subject = small_subject()
    stopwatch = Stopwatch(subject, context=8)
    measured = stopwatch.measure(2).steps.mean_entropy
    config, cache, noise = subject.network.config, stopwatch.cache, SeededNoise(0)
    block = block_of(WARM_UP + 2 + CLOCKED)
    canvas = noise.canvas(config.canvas_length, config.vocab_size)
    entropies = [step.event.mean_entropy for step in dynamic_steps(subject.network, cache, canvas, noise, block)]
    assert measured == statistics.mean(entropies[WARM_UP : WARM_UP + 2])
    assert len(set(entropies)) == len(entropies), "each step has its own"


def test_parts_are_those_of_a_step_that_there_was() -> None:
    passes: list[dict[Place, float]] = [
        {("head", None): 9.0, ("sampling", None): 1.0},
        {("head", None): 1.0, ("sampling", None): 7.0},
        {("head", None): 3.0, ("sampling", None): 90.0},
    ]
    assert _median_pass(passes) is passes[0]
