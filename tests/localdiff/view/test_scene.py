"""Folding events into scenes, and reading their numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localdiff.events import BlockCommitted, BlockStarted, DenoiseStep, Prefilled, RunFinished, RunStarted
from localdiff.view.canvas_state import state_of
from localdiff.view.palette import LEANING, NOISE, SETTLED
from localdiff.view.scene import REMEMBERED_STEPS, Scene, fold
from tests.fakes.canvas import END, Script

EVENTS = list(Script(canvas=32).events())
RUN = next(event for event in EVENTS if isinstance(event, RunStarted))
BLOCKS = [event for event in EVENTS if isinstance(event, BlockStarted)]
STEPS = [event for event in EVENTS if isinstance(event, DenoiseStep) and event.block == 1]
COMMITS = [event for event in EVENTS if isinstance(event, BlockCommitted)]


def scene_after(*events: object) -> Scene:
    scene = Scene(slowed=True, legend=True)
    for event in events:
        scene = fold(scene, event)  # type: ignore[arg-type]
    return scene


def test_a_run_starts_afresh_but_keeps_what_the_viewer_chose() -> None:
    used = scene_after(RUN, BLOCKS[0], *STEPS, COMMITS[0])
    assert fold(used, RUN) == Scene(run=RUN, slowed=True, legend=True)


def test_the_prompt() -> None:
    progress = Prefilled(done=3, total=9, cached_tokens=0, seconds=0.1)
    assert scene_after(RUN, progress).prefill == progress


def test_a_block_starts_without_steps_and_remembers_nothing_of_the_one_before() -> None:
    scene = scene_after(RUN, BLOCKS[0], *STEPS, COMMITS[0], BLOCKS[1])
    assert (scene.block, scene.step, scene.accepted_before, scene.means) == (BLOCKS[1], None, None, ())
    assert scene.block_steps == (len(STEPS),)
    assert scene.passes == len(STEPS)


def test_steps() -> None:
    scene = scene_after(RUN, BLOCKS[0], *STEPS[:3])
    assert scene.step == STEPS[2]
    assert scene.accepted_before == STEPS[1].accepted
    assert scene.means == tuple(step.mean_entropy for step in STEPS[:3])
    assert scene_after(RUN, BLOCKS[0], STEPS[0]).accepted_before is None


def test_only_the_latest_means_are_kept() -> None:
    scene = scene_after(RUN, BLOCKS[0], *STEPS[:1] * 100)
    assert len(scene.means) == REMEMBERED_STEPS


def test_a_committed_block_stays_in_sight_until_the_next_one_starts() -> None:
    scene = scene_after(RUN, BLOCKS[0], *STEPS, COMMITS[0])
    assert scene.step == STEPS[-1]


def test_the_rate_counts_visible_tokens_over_the_time_up_to_the_commit() -> None:
    commit = replace(COMMITS[0], token_ids=(300, 301, END))
    step = replace(STEPS[0], elapsed=0.5)
    scene = scene_after(RUN, BLOCKS[0], step, commit)
    assert scene.tokens == 2
    assert scene.tok_per_s == 4.0
    later = fold(fold(scene, BLOCKS[1]), replace(STEPS[1], block=2, elapsed=9.0))
    assert later.tok_per_s == 4.0, "it does not sag while the next block condenses"


def test_a_cancelled_first_block_has_no_rate() -> None:
    commit = replace(COMMITS[0], token_ids=(), reason="cancelled")
    assert scene_after(RUN, BLOCKS[0], STEPS[0], commit).tok_per_s is None


@pytest.mark.parametrize(("tokens", "rate"), [(7, 3.5), (0, 4.0)])
def test_the_end_has_the_rate_of_the_whole_run(tokens: int, rate: float) -> None:
    finished = EVENTS[-1]
    assert isinstance(finished, RunFinished)
    stats = replace(finished.stats, tokens=tokens, tok_per_s=3.5 if tokens else 0.0)
    scene = replace(scene_after(RUN, BLOCKS[0], STEPS[0]), tok_per_s=4.0)
    assert fold(scene, replace(finished, stats=stats)) == replace(scene, tok_per_s=rate)


def step_of(entropies: list[float], ids: list[int], accepted: list[bool]) -> DenoiseStep:
    return replace(
        STEPS[0],
        argmax_ids=tuple(ids),
        entropies=tuple(entropies),
        accepted=tuple(accepted),
        argmax_probs=(1.0,) * len(ids),
        sampled_ids=tuple(ids),
        shown_ids=tuple(ids),
    )


def test_an_untouched_canvas_reads_as_noise() -> None:
    state = state_of(scene_after(RUN, BLOCKS[0]))
    assert set(state.stages) == {NOISE}
    assert (state.settled, sum(state.renoised), state.end, len(state.stages)) == (0, 0, 32, 32)


def test_settled_goes_by_entropy_and_renoised_by_acceptance() -> None:
    before = step_of([0.01, 0.5, 9, 0.01], [300] * 4, [True, True, False, False])
    now = step_of([0.01, 0.5, 9, 0.01], [300] * 4, [True, False, False, True])
    state = state_of(scene_after(RUN, BLOCKS[0], before, now))
    assert state.stages == (SETTLED, LEANING, NOISE, SETTLED)
    assert state.settled == 2
    assert state.renoised == (False, True, False, False)
    assert not any(state_of(scene_after(RUN, BLOCKS[0], now)).renoised), "nothing was accepted before the first step"


def test_only_an_end_that_the_model_leans_to_ends_the_page() -> None:
    ids = [300, END, 300, END, END]
    assert state_of(scene_after(RUN, BLOCKS[0], step_of([0, 5.0, 0, 0.9, 0], ids, [True] * 5))).end == 3
    assert state_of(scene_after(RUN, BLOCKS[0], step_of([0, 0.0, 0, 0.9, 0], ids, [True] * 5))).end == 1
    assert state_of(scene_after(RUN, BLOCKS[0], step_of([0, 2.0, 0, 2.0, 2.0], ids, [True] * 5))).end == 5
