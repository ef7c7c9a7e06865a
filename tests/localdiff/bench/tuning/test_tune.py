"""Tuning, from random weights to the file, on an imitated card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args
from unittest import mock

import pytest
import torch

from localdiff.bench.step.subject import Make, Subject, random_subject
from localdiff.bench.tuning import search, step_clock
from localdiff.bench.tuning import tune as module
from localdiff.bench.tuning.note import Note, Verdict, note_file
from localdiff.bench.tuning.search import Found, Outcome
from localdiff.bench.tuning.step_clock import STEP_NAMES, StepClock
from localdiff.bench.tuning.tune import forget, tune
from localdiff.denoising import compare_kernels
from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.errors import ResourceError, UsageError, WeightsError
from localdiff.load import kernels
from localdiff.machine.output_lock import locked
from localdiff.timed_tiles import AnyTile, keep_timed_tiles, read_timed_tiles, tiles_file
from quant.cuda import parity, timed
from quant.cuda.tiles import Tile
from quant.cuda.timed import Kind, Product, asked_for
from tests.fakes.attention import patched
from tests.gpu.kernels import needs_interpreter
from tests.gpu.queue import Queue
from tests.localdiff.bench.step.small import ALL_LAYERS, small_config

pytestmark = [needs_interpreter, pytest.mark.filterwarnings("ignore:divide by zero")]

CARD, CONTEXT = torch.device("cuda", 0), 16
OLD, NEW = (
    Product(kind="linear", weights="w8a16", dtype="bf16", rows=256, columns=columns, inputs=64) for columns in (64, 128)
)
USUAL, FAST = Tile(16, 64, 4), Tile(32, 64, 4)


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Queue]:
    from tests.gpu.host import card

    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    monkeypatch.setattr(timed, "_timed", {})
    with card() as made, mock.patch.object(kernels, "can_attend", lambda *_: True):
        yield made


@pytest.fixture
def queue(on_card: Queue) -> Iterator[Queue]:
    """The queue of the card, with the attention kernels replaced by torch."""
    with patched():
        yield on_card


def make() -> Make:
    """Four layers; their kernels between matmuls take the interpreter the most time, so tests switch them off."""
    return random_subject(
        recipe="int8",
        layers=4,
        context=CONTEXT,
        device="cuda",
        dtype="fp32",
        configure=small_config,
        all_layers=ALL_LAYERS,
    )


@pytest.mark.slow
def test_each_timing_captures_a_step_anew_and_replays_it(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    for where, name, few in ((step_clock, "WARM_UP", 0), (step_clock, "TIMED", 1), (search, "FINAL_ROUNDS", 1)):
        monkeypatch.setattr(where, name, few)
    replays: list[int] = []

    def median(seconds: list[float]) -> float:
        (second,) = seconds
        replays.append(queue.recorder.graphs[-1].replays)
        return second

    monkeypatch.setattr(step_clock.statistics, "median", median)
    tuning = tune(make(), context=CONTEXT, seconds=0)
    assert not tuning.outcome.tried and tuning.outcome.left > 5 and tuning.file is None
    assert all(seconds > 0 for seconds in (*tuning.outcome.usual.values(), *tuning.outcome.tuned.values()))
    assert replays == [2] * 6, "both kinds of steps, and again with the usual tiles and with those that were found"


@pytest.mark.slow
def test_what_a_step_asks_a_tile_for_is_compared_with_the_plain_path(
    on_card: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both kinds of steps, and for the same numbers of rows, since others may have other tiles."""
    monkeypatch.setattr(step_clock, "WARM_UP", 0)
    monkeypatch.setattr(step_clock, "TIMED", 1)
    monkeypatch.setattr(parity, "_TOP_K", 2)  # experts of a row of this small model; the released one has 8
    subject = make()(lambda _: None)
    with asked_for() as compared:
        compare_kernels(subject.denoiser, subject.expectations)
    clock = StepClock(subject, context=CONTEXT)
    with asked_for() as asked:
        for step in STEP_NAMES:
            clock.seconds(step)
    assert {product.kind for product in asked} == {*get_args(Kind)}
    assert not {*asked} - {*compared}


@pytest.mark.slow
def test_a_step_that_fails_leaves_the_context_as_it_was(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    monkeypatch.setattr(step_clock, "WARM_UP", 0)
    monkeypatch.setattr(step_clock, "TIMED", 1)
    subject = make()(lambda _: None)
    clock, weight = StepClock(subject, context=CONTEXT), subject.network.norm.weight
    right = weight.clone()
    weight.fill_(float("nan"))
    for _ in range(2):
        with pytest.raises(WeightsError, match="NaN"):
            clock.seconds("commit")
    weight.copy_(right)
    assert clock.seconds("commit") > 0


@pytest.mark.slow
def test_a_step_that_is_not_captured_is_not_timed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "layer-ops")
    monkeypatch.setattr(step_clock, "WARM_UP", 0)
    monkeypatch.setattr(step_clock, "TIMED", 1)
    clock = StepClock(make()(lambda _: None), context=CONTEXT)

    def refuse(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch, pytest.raises(ResourceError, match="could not be captured"):
        patch.setattr(GraphCapturer, "_capture", refuse)
        clock.seconds("step")
    assert clock.seconds("step") > 0


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], None]:
    """Sets what the search finds, without any model."""

    def set_outcome(outcome: Outcome) -> None:
        monkeypatch.setattr(module, "search", lambda *_, **__: outcome)
        monkeypatch.setattr(module, "StepClock", mock.Mock())
        monkeypatch.setattr(module, "why_unsupported", lambda _: None)

    return set_outcome


def subject(**path: bool) -> Make:
    denoiser = mock.Mock(path=mock.Mock(captured=True, fuses_commits=True, **path))
    built = mock.Mock(config=mock.Mock(layers=(None,) * 12))
    return Make(CARD, lambda _: mock.Mock(spec=Subject, denoiser=denoiser, expectations=(), built=built))


def outcome(*, tried: list[Product], tuned: float, tile: AnyTile = FAST, left: int = 0) -> Outcome:
    faster = [Found(product=NEW, usual=USUAL, tile=tile, share=0.9)] if NEW in tried else []
    return Outcome(
        found=faster, tried=tried, left=left, usual={"step": 1.0, "commit": 2.0}, tuned={"step": tuned, "commit": 2.0}
    )


def test_what_other_recipes_have_kept_stays(queue: Queue, found: Callable[[Outcome], None]) -> None:
    keep_timed_tiles(CARD, {OLD: FAST, NEW: Tile(64, 64, 4)})
    found(outcome(tried=[NEW], tuned=0.9))
    tuning = tune(subject(), context=CONTEXT, seconds=60)
    assert tuning.file == tiles_file(CARD) and tuning.gpu == torch.cuda.get_device_name(CARD)
    assert read_timed_tiles(CARD) == {OLD: FAST, NEW: FAST}


def test_what_was_timed_again_and_is_not_faster_is_forgotten(queue: Queue, found: Callable[[Outcome], None]) -> None:
    keep_timed_tiles(CARD, {OLD: FAST, NEW: FAST})
    found(outcome(tried=[NEW], tuned=1.0))
    assert tune(subject(), context=CONTEXT, seconds=60).file is not None
    assert read_timed_tiles(CARD) == {OLD: FAST}
    found(outcome(tried=[OLD, NEW], tuned=1.0))
    assert tune(subject(), context=CONTEXT, seconds=60).file is None
    assert not tiles_file(CARD).exists()


def test_a_file_that_no_longer_counts_is_replaced(queue: Queue, found: Callable[[Outcome], None]) -> None:
    file = keep_timed_tiles(CARD, {OLD: FAST})
    assert file is not None
    file.write_text("{}")
    found(outcome(tried=[NEW], tuned=0.9))
    tune(subject(), context=CONTEXT, seconds=60)
    assert read_timed_tiles(CARD) == {NEW: FAST}


def test_what_was_kept_meanwhile_stays(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object, **__: object) -> Outcome:
        keep_timed_tiles(CARD, {OLD: FAST})  # as another process does, for another recipe
        return outcome(tried=[NEW], tuned=0.9)

    monkeypatch.setattr(module, "search", search)
    monkeypatch.setattr(module, "StepClock", mock.Mock())
    monkeypatch.setattr(module, "why_unsupported", lambda _: None)
    tune(subject(), context=CONTEXT, seconds=60)
    assert read_timed_tiles(CARD) == {OLD: FAST, NEW: FAST}


def test_nothing_is_timed_that_could_not_be_kept(queue: Queue, found: Callable[[Outcome], None]) -> None:
    found(outcome(tried=[NEW], tuned=0.9))
    folder = tiles_file(CARD).parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    with pytest.raises(ResourceError, match=r"cannot be written"):
        tune(Make(CARD, lambda _: pytest.fail("nothing is made")), context=CONTEXT, seconds=60)


def test_where_kernels_are_wrong_before_anything_is_timed_nothing_is_left_behind(
    queue: Queue, found: Callable[[Outcome], None]
) -> None:
    found(outcome(tried=[NEW], tuned=0.9))

    def wrong(_: object) -> Subject:
        raise ResourceError("kernels compute wrong numbers here: numbers differ")

    with pytest.raises(ResourceError, match="numbers differ"):
        tune(Make(CARD, wrong), context=CONTEXT, seconds=60)
    assert not [*tiles_file(CARD).parent.iterdir()]


def test_steps_that_are_not_captured_are_not_timed(queue: Queue, found: Callable[[Outcome], None]) -> None:
    found(outcome(tried=[], tuned=1.0))
    plain = subject()
    plain.subject(lambda _: None).denoiser.path.captured = False
    with pytest.raises(ResourceError, match="tiles are timed in captured steps") as raised:
        tune(plain, context=CONTEXT, seconds=60)
    assert "where kernels of `experts` or `attention` fail" in str(raised.value.hint)


def test_without_a_gpu_there_are_no_tiles() -> None:
    cpu = Make(torch.device("cpu"), lambda _: pytest.fail("nothing is made"))
    with pytest.raises(ResourceError, match="tiles are for GPU kernels, and `cpu` has none"):
        tune(cpu, context=CONTEXT, seconds=60)
    with pytest.raises(ResourceError, match="and `cpu` has none"):
        forget("cpu")


def test_forgetting_says_what_it_deleted(queue: Queue) -> None:
    file = keep_timed_tiles(CARD, {OLD: FAST})
    assert forget("cuda") == [file] and not tiles_file(CARD).exists()
    unfinished(NEW)
    assert forget("cuda") == [note_file(CARD)] and not note_file(CARD).exists()
    assert forget("cuda") == []


def unfinished(*products: Product, steps: str = f"12 layers, {CONTEXT} tokens of context") -> None:
    """Leaves the note of a search that knows one tile of some products."""
    note = Note(CARD, steps)
    for of in products:
        with note.in_hand(of, FAST):
            note.add(of, FAST, Verdict(share=1.0))


def test_a_search_that_has_finished_leaves_no_note(queue: Queue, found: Callable[[Outcome], None]) -> None:
    unfinished(OLD, NEW)
    found(outcome(tried=[NEW], tuned=0.9, left=1))
    tuning = tune(subject(), context=CONTEXT, seconds=60)
    assert note_file(CARD).exists() and read_timed_tiles(CARD) == {NEW: FAST}, "what is known so far is kept, too"
    assert tuning.earlier == 1
    found(outcome(tried=[NEW], tuned=0.9))
    assert tune(subject(), context=CONTEXT, seconds=60).earlier == 1
    assert Note.read(CARD, f"12 layers, {CONTEXT} tokens of context").products() == {OLD: 1}, "another recipe's"
    found(outcome(tried=[OLD, NEW], tuned=0.9))
    tune(subject(), context=CONTEXT, seconds=60)
    assert not note_file(CARD).exists()


def test_a_note_that_does_not_count_costs_a_line(
    queue: Queue, found: Callable[[Outcome], None], caplog: pytest.LogCaptureFixture
) -> None:
    found(outcome(tried=[NEW], tuned=0.9, left=1))
    unfinished(NEW, steps="6 layers, 16 tokens of context")
    assert tune(subject(), context=CONTEXT, seconds=60).earlier == 0
    assert caplog.messages == [
        "the tiles of an unfinished search are timed again: they were timed in other steps (6 layers, 16 tokens of "
        "context)"
    ]


def test_a_tile_in_whose_time_the_process_was_killed_is_named(
    queue: Queue, found: Callable[[Outcome], None], caplog: pytest.LogCaptureFixture
) -> None:
    found(outcome(tried=[NEW], tuned=0.9))

    class Killed(BaseException):
        pass

    with pytest.raises(Killed), Note(CARD, f"12 layers, {CONTEXT} tokens of context").in_hand(NEW, FAST):
        raise Killed
    tune(subject(), context=CONTEXT, seconds=60)
    assert caplog.messages == [
        "32 × 64, 4 warps, 3 stages is left out (linear layer, w8a16, 64 to 128, 256 rows): the last search ended "
        "while it was timed"
    ]


def test_one_process_at_a_time_tunes_a_gpu(queue: Queue, found: Callable[[Outcome], None]) -> None:
    """Two would overwrite each other's results."""
    found(outcome(tried=[NEW], tuned=0.9))
    with locked(tiles_file(CARD)):
        for another in (lambda: tune(subject(), context=CONTEXT, seconds=60), lambda: forget("cuda")):
            with pytest.raises(UsageError, match="another process is working on") as refused:
                another()
            assert refused.value.hint == "wait until it ends: one process at a time tunes a GPU"
    assert tune(subject(), context=CONTEXT, seconds=60).file is not None
