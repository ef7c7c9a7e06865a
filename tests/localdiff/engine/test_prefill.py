"""How a prompt is split, and its end read together with the first denoise step, against reading it alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localdiff import load
from localdiff.engine import Engine
from localdiff.engine.prefix_cache import PrefixCache
from localdiff.events import BlockStarted, DenoiseStep, Event, Prefilled, RunFinished
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import GenerateOptions
from tests.models import caches, tiny
from tests.models.events import end_of
from tests.models.steps import denoiser_of

pytestmark = pytest.mark.usefixtures("attention_in_torch")

FUSED = [{"fuses_commits": True}, {"fuses_commits": True, "static": True}]
PROMPT = list(range(9, 28))
OPTIONS = GenerateOptions(seed=3, max_tokens=12, entropy_bound=1.5, cap=2)


def engine(directory: Path, **how: Any) -> Engine:
    network = tiny.model(scale=0.25, top_k_experts=4)  # all experts: no rounding can route a row to another one
    made = tiny.engine(directory, network=network, eos_token_id=[tiny.VOCAB_SIZE])
    made.denoiser = denoiser_of(network, **how)
    return made


def told(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """What was drafted and committed."""
    return [(e.block, e.argmax_ids, e.accepted, e.sampled_ids) for e in events if isinstance(e, DenoiseStep)] + [
        e.token_ids for e in events if isinstance(e, RunFinished)
    ]


def steps(events: Sequence[Event]) -> list[DenoiseStep]:
    return [event for event in events if isinstance(event, DenoiseStep)]


def part_at_a_tie(first: Sequence[Event], second: Sequence[Event]) -> bool:
    """Whether the runs diverge in one decision because of rounding; up to there, or throughout, they must be equal.

    Sums in another order differ in their last digits. One draw in some ten thousand falls in between; so may two
    ids that are equally probable, or two positions whose order decides which one is accepted.
    """
    for one, other in zip(steps(first), steps(second), strict=False):
        if told([one]) == told([other]):
            continue
        for mine, theirs in ((one.entropies, other.entropies), (one.argmax_probs, other.argmax_probs)):
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), atol=1e-4, rtol=0)
        apart = sum(a != b for a, b in zip(one.argmax_ids, other.argmax_ids, strict=True))
        taken = sum(a != b for a, b in zip(one.accepted, other.accepted, strict=True))
        draws = [(a, b) for a, b in zip(one.sampled_ids, other.sampled_ids, strict=True) if a != b]
        assert apart + (taken + 1) // 2 + len(draws) == 1, "one decision; two positions may take each other's place"
        assert all(abs(a - b) == 1 for a, b in draws)
        return True
    assert told(first) == told(second)
    return False


def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Commit rows and canvas rows of every pass from then on."""
    seen: list[tuple[int, int]] = []
    plain = DiffusionGemma.rows

    def rows(self: DiffusionGemma, commit: torch.Tensor, canvas: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append((len(commit), len(canvas)))
        return plain(self, commit, canvas, *rest)

    monkeypatch.setattr(DiffusionGemma, "rows", rows)
    return seen


@pytest.mark.parametrize("how", FUSED, ids=str)
def test_the_end_of_a_prompt_costs_no_pass_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    expected = list(engine(tmp_path).generate(PROMPT, OPTIONS))
    seen = passes(monkeypatch)
    found = list(engine(tmp_path, **how).generate(PROMPT, OPTIONS))
    assert told(found) == told(expected)
    canvas = tiny.CANVAS
    assert seen[:5] == [(4, 0), (4, 0), (4, 0), (4, 0), (3, canvas)], "chunks of 4, and what is left of 19"


@pytest.mark.parametrize(("chunk", "first"), [(26, (19, 0)), (27, (19, tiny.CANVAS))])
def test_a_pass_over_the_end_of_a_prompt_and_a_canvas_has_no_more_rows_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, first: tuple[int, int]
) -> None:
    made = engine(tmp_path, fuses_commits=True)
    made.prefill_chunk = chunk
    seen = passes(monkeypatch)
    list(made.generate(PROMPT, OPTIONS))
    assert seen[0] == first


@pytest.mark.parametrize("how", FUSED, ids=str)
def test_it_is_told_when_it_was_read(tmp_path: Path, how: Any) -> None:
    """The last `Prefilled` comes after the pass and before the block; the prompt's seconds include all of that pass."""
    events = list(engine(tmp_path, **how).generate(PROMPT, OPTIONS))
    read = [event for event in events if isinstance(event, Prefilled)]
    assert [event.done for event in read] == [4, 8, 12, 16, 19]
    assert all(event.total == 19 for event in read)
    seconds = [0.0, *(event.seconds for event in read)]
    assert all(before < after for before, after in itertools.pairwise(seconds))
    at = events.index(read[-1])
    started, first = events[at + 1 : at + 3]
    assert isinstance(started, BlockStarted) and started.block == 1
    assert isinstance(first, DenoiseStep) and first.step == 1
    finished = end_of(events)
    assert finished.stats.prompt_seconds == read[-1].seconds
    assert read[-1].seconds - read[-2].seconds >= first.seconds
    assert finished.stats.seconds >= first.seconds, "the rate of the answer is none the better for it"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 30), st.lists(st.integers(9, 60), min_size=1, max_size=14), st.integers(0, 50)),
        min_size=1,
        max_size=3,
    ),
    how=st.sampled_from(FUSED),
    chunk=st.sampled_from([3, 8, 40]),
)
def test_whatever_came_before_the_cache_is_what_the_ids_say(
    tmp_path: Path, turns: list[tuple[int, list[int], int]], how: Any, chunk: int
) -> None:
    """With prompts that diverge anywhere, and forks anywhere in them: drafts as without fusing, caches exact."""
    plain, fused = engine(tmp_path), engine(tmp_path, **how)
    plain.prefill_chunk = fused.prefill_chunk = chunk
    prefix_caches = plain.new_prefix_cache(), fused.new_prefix_cache()
    prompt = list(PROMPT)
    for keep, more, fork in turns:
        prompt = [*prompt[:keep], *more]
        results = []
        for made, prefix_cache in zip((plain, fused), prefix_caches, strict=True):
            prefix_cache.fork = fork or None
            results.append(list(made.generate(prompt, OPTIONS, prefix_cache=prefix_cache)))
        if part_at_a_tie(*results):
            return
        assert prefix_caches[0].ids == prefix_caches[1].ids
        prefix_cache = prefix_caches[1]
        caches.assert_same(fused.model, prefix_cache.kv_cache, caches.prefill(fused.model, prefix_cache.ids, 64))


def test_a_fork_at_the_end_of_the_prompt_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings have wrapped by the next prompt; with the snapshot only the new ids have to be read."""
    made = engine(tmp_path, fuses_commits=True)
    prefix_cache = made.new_prefix_cache()
    prefix_cache.fork = len(PROMPT)
    seen = passes(monkeypatch)
    list(made.generate(PROMPT, OPTIONS, prefix_cache=prefix_cache))
    assert seen[4] == (3, tiny.CANVAS), "the fork costs no pass of its own"
    seen.clear()
    again = list(made.generate([*PROMPT, 11], OPTIONS, prefix_cache=prefix_cache))
    read = [event for event in again if isinstance(event, Prefilled)]
    assert (read[0].done, read[0].seconds) == (len(PROMPT), 0.0)
    assert read[-1].done == read[-1].total == len(PROMPT) + 1
    assert {event.cached_tokens for event in read} == {len(PROMPT)}
    assert seen[0] == (1, tiny.CANVAS)


def test_a_fork_in_what_is_left_of_the_prompt_costs_a_pass_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(tmp_path, fuses_commits=True)
    prefix_cache = made.new_prefix_cache()
    prefix_cache.fork = len(PROMPT) - 2
    seen = passes(monkeypatch)
    list(made.generate(PROMPT, OPTIONS, prefix_cache=prefix_cache))
    assert seen[4:6] == [(1, 0), (2, tiny.CANVAS)]
    next(made.generate([*PROMPT[:-2], 11], OPTIONS, prefix_cache=prefix_cache))
    assert prefix_cache.ids == tuple(PROMPT[:-2])


@pytest.mark.parametrize("events", [1, 3])
def test_given_up_before_the_first_step_nothing_is_lost(tmp_path: Path, events: int) -> None:
    made = engine(tmp_path, fuses_commits=True)
    prefix_cache, cancel = made.new_prefix_cache(), threading.Event()
    run = made.generate(PROMPT, OPTIONS, prefix_cache=prefix_cache, cancel=cancel)
    for _ in range(events):
        next(run)
    cancel.set()
    assert isinstance(list(run)[-1], RunFinished)
    held = len(prefix_cache.ids)
    assert held == 4 * (events - 1)
    assert prefix_cache.start_run(PROMPT, prefix_cache.kv_cache.capacity) == held


@pytest.mark.parametrize("how", FUSED, ids=str)
def test_given_up_after_the_first_step_the_whole_prompt_is_held(tmp_path: Path, how: Any) -> None:
    made = engine(tmp_path, **how)
    prefix_cache = made.new_prefix_cache()
    run = made.generate(PROMPT, OPTIONS, prefix_cache=prefix_cache)
    while not (isinstance(event := next(run), Prefilled) and event.done == event.total):
        pass
    run.close()
    assert prefix_cache.ids == tuple(PROMPT)


def test_a_first_step_that_breaks_off_leaves_nothing_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pass may have overwritten some rings and not others."""
    made = engine(tmp_path, fuses_commits=True)
    prefix_cache = made.new_prefix_cache()

    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(DiffusionGemma, "denoise", broken)
        with pytest.raises(RuntimeError, match="out of memory"):
            list(made.generate(PROMPT, OPTIONS, prefix_cache=prefix_cache))
    assert prefix_cache.start_run(PROMPT, prefix_cache.kv_cache.capacity) == 0
    assert isinstance(prefix_cache, PrefixCache)


@pytest.mark.parametrize(
    ("said", "releases"), [("Triton Error [CUDA]: out of memory", 1), ("Triton Error [CUDA]: unknown error", 0)]
)
def test_where_others_than_torch_are_out_of_memory_it_gives_back_what_it_keeps(
    said: str, releases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This keeps a chat, which goes on, from running into the same error again."""

    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError(said)

    released: list[bool] = []

    def release() -> None:
        released.append(True)
        raise RuntimeError("not while another thread captures")

    monkeypatch.setattr(load, "release_cached_memory", release)
    monkeypatch.setattr(DiffusionGemma, "denoise", broken)
    with pytest.raises(RuntimeError, match="Triton Error"):
        list(engine(tmp_path).generate(PROMPT, OPTIONS))
    assert len(released) == releases
