"""One block, step by step: what the model is shown, what it carries, when it stops, and what an event says about it.

The model is a tiny one whose logits the test writes; the noise is a list, so that every canvas can be predicted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from localdiff.denoising import BlockSettings, Step, dynamic
from localdiff.denoising.dynamic import dynamic_steps
from localdiff.diffusion.noise import Noise, SeededNoise
from localdiff.diffusion.sampler import temperature_at
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule, StopTest, Verdict
from localdiff.errors import WeightsError
from localdiff.events import DenoiseStep
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.fakes.clock import FakeClock
from tests.models import tiny

CPU = torch.device("cpu")
LENGTH, VOCAB = tiny.CANVAS, tiny.VOCAB_SIZE
START = torch.arange(LENGTH)
ONE, OTHER = [9] * LENGTH, [9] * (LENGTH - 1) + [10]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one denoise step was given."""

    canvas: tuple[int, ...]
    soft: Tensor | None
    commit: tuple[int, ...]


class Scripted(DiffusionGemma):
    """Answers with the logits of a script, one [L, V] per step, and remembers what it was given."""

    def __init__(self, script: Iterable[Tensor]) -> None:
        super().__init__(tiny.config())
        self.load_state_dict(tiny.model().state_dict())
        self.requires_grad_(False)
        self.script = list(script)
        self.seen: list[Seen] = []
        self.carried = 0

    def denoise(
        self, canvas_ids: Tensor, cache: KVCache, soft: Tensor | None = None, commit_ids: Tensor | None = None
    ) -> Tensor:
        assert len(self.seen) < len(self.script), "a step too many"
        logits = self.script[len(self.seen)].clone()
        commit = () if commit_ids is None else tuple(commit_ids.tolist())
        self.seen.append(Seen(canvas=tuple(canvas_ids.tolist()), soft=soft, commit=commit))
        return logits

    def soft_embedding(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        self.carried += 1
        return super().soft_embedding(logits, log_normalizer)


class Listed:
    """Noise that counts up: each sample is the argmax plus one, each canvas is full of one new id."""

    whole_canvas = False

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._next = 40

    def at(self, block: int, step: int) -> None:
        self.calls.append(f"block {block} step {step}")

    def canvas(self, length: int, vocab_size: int) -> Tensor:
        assert (length, vocab_size) == (LENGTH, VOCAB)
        self.calls.append("canvas")
        self._next += 1
        return torch.full((length,), self._next)

    def start_step(self, length: int) -> None:
        self.calls.append("start")

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        self.calls.append(f"sample from row {first_row}")
        return probs.argmax(dim=-1) + 1


def sure(ids: Sequence[int]) -> Tensor:
    return 1000.0 * torch.nn.functional.one_hot(torch.tensor(ids), VOCAB).float()


def unsure(ids: Sequence[int]) -> Tensor:
    return sure(ids) / 1e5


def denoise(
    script: Iterable[Tensor],
    noise: Noise | None = None,
    rule: StopRule = "both",
    commit: Tensor | None = None,
    **settings: float,
) -> tuple[list[Step], Scripted]:
    model = Scripted(script)
    block = BlockSettings(
        number=3,
        started=time.perf_counter(),
        sampler=SamplerSettings(**{"schedule_steps": 6} | settings),  # type: ignore[arg-type]
        stop_rule=rule,
        pad_id=tiny.PAD,
    )
    cache = KVCache(model.config, 16, torch.float32, CPU)
    return list(dynamic_steps(model, cache, START, noise or SeededNoise(0), block, commit)), model


def events(steps: Sequence[Step]) -> list[DenoiseStep]:
    return [step.event for step in steps]


def test_steps_count_from_one_and_the_last_one_says_that_it_converged() -> None:
    steps, model = denoise([unsure(OTHER), unsure(OTHER), sure(ONE), sure(ONE), sure(ONE)])
    assert [(step.event.block, step.event.step, step.converged) for step in steps] == [
        (3, 1, False),
        (3, 2, False),
        (3, 3, False),
        (3, 4, True),
    ]
    assert [(event.stable, event.confident) for event in events(steps)] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]
    assert events(steps)[-1].argmax_ids == tuple(ONE)
    assert len(model.seen) == 4


def test_the_steps_run_out_without_convergence() -> None:
    steps, _ = denoise([sure(ONE), sure(OTHER)] * 3)
    assert len(steps) == 6
    assert not any(step.converged for step in steps)


def test_a_cap_cuts_the_loop_and_leaves_the_temperatures() -> None:
    long, _ = denoise([sure(ONE), sure(OTHER)] * 3)
    short, _ = denoise([sure(ONE), sure(OTHER)], cap=2)
    assert [event.temperature for event in events(short)] == [event.temperature for event in events(long)][:2]
    assert {event.max_steps for event in events(short)} == {2}
    settings = SamplerSettings(schedule_steps=6)
    assert [event.temperature for event in events(long)] == [temperature_at(step, settings) for step in range(1, 7)]


@pytest.mark.parametrize(("rule", "expected"), [("never", 4), ("stable", 2), ("confident", 3), ("both", 3)])
def test_the_rule_decides_when_to_stop(rule: StopRule, expected: int) -> None:
    steps, _ = denoise([unsure(ONE), unsure(ONE), sure(ONE), sure(ONE)], rule=rule, schedule_steps=4)
    assert len(steps) == expected


def test_a_step_shows_what_was_accepted_and_fresh_noise_elsewhere() -> None:
    half = torch.cat((sure(ONE)[:4], unsure(ONE)[4:]))
    steps, model = denoise([half, half.flip(0), sure(OTHER)], Listed(), schedule_steps=3)
    first, second, third = events(steps)
    assert first.shown_ids == model.seen[0].canvas == tuple(START.tolist())
    # The surest four are accepted, and one more, because nothing comes before it.
    assert first.accepted == (True,) * 5 + (False,) * 3
    assert second.shown_ids == model.seen[1].canvas == (10,) * 5 + (41,) * 3
    assert second.accepted.count(True) == 5, "decided anew: what was accepted before may go"
    assert second.accepted[4:] == (True,) * 4
    assert third.shown_ids == model.seen[2].canvas
    assert [shown == 42 for shown in third.shown_ids] == [not accepted for accepted in second.accepted]


def test_the_caller_keeps_its_canvas() -> None:
    denoise([sure(ONE)] * 2)
    assert torch.equal(START, torch.arange(LENGTH))


def test_noise_is_drawn_in_one_order() -> None:
    noise = Listed()
    denoise([sure(ONE)] * 2, noise)
    one_step = ["start", "sample from row 0", "canvas"]
    assert noise.calls == ["block 3 step 1", *one_step, "block 3 step 2", *one_step]


def test_greedy_takes_the_draft_and_draws_no_samples() -> None:
    noise = Listed()
    steps, _ = denoise([unsure(ONE), sure(ONE)], noise, greedy=True)
    assert noise.calls == ["block 3 step 1", "canvas", "block 3 step 2", "canvas"]
    assert all(event.sampled_ids == event.argmax_ids for event in events(steps))


def test_each_step_is_conditioned_on_the_one_before() -> None:
    """On the capped logits, divided by the temperature of the step that made them."""
    peaked = 20 * torch.randn(LENGTH, VOCAB, generator=torch.Generator().manual_seed(1))
    script = [unsure(OTHER), peaked, sure(ONE)]
    steps, model = denoise(script, schedule_steps=3)
    assert model.seen[0].soft is None
    for logits, step, seen in zip(script, steps, model.seen[1:], strict=False):
        processed = 30 * torch.tanh(logits / 30) / step.event.temperature
        expected = processed.softmax(dim=-1) @ model.embed_tokens.weight * model.config.hidden_size**0.5
        assert seen.soft is not None
        torch.testing.assert_close(seen.soft, expected, atol=1e-4, rtol=1e-4)


def test_the_first_step_alone_commits() -> None:
    _, model = denoise([sure(ONE), sure(OTHER), sure(ONE)], schedule_steps=3, commit=torch.tensor([5, 6]))
    assert [seen.commit for seen in model.seen] == [(5, 6), (), ()]
    _, model = denoise([sure(ONE), sure(OTHER)], schedule_steps=2)
    assert [seen.commit for seen in model.seen] == [(), ()]


@pytest.mark.parametrize("script", [[sure(ONE)] * 2, [sure(ONE), sure(OTHER)] * 3])
def test_nothing_is_carried_out_of_the_last_step(script: list[Tensor]) -> None:
    steps, model = denoise(script)
    assert model.carried == len(steps) - 1


def test_an_event_holds_the_distribution_that_was_drawn_from() -> None:
    logits = 5 * torch.randn(LENGTH, VOCAB, generator=torch.Generator().manual_seed(1))
    steps, _ = denoise([logits], schedule_steps=1)
    event = steps[0].event
    probs = (30 * torch.tanh(logits.double() / 30) / event.temperature).softmax(dim=-1)
    entropy = -(probs * probs.log()).sum(dim=-1)
    assert event.argmax_ids == tuple(probs.argmax(dim=-1).tolist())
    assert event.argmax_probs == pytest.approx(probs.amax(dim=-1).tolist(), rel=1e-5)
    assert event.entropies == pytest.approx(entropy.tolist(), rel=1e-5)
    assert event.mean_entropy == pytest.approx(entropy.mean().item(), rel=1e-5)
    assert {len(values) for values in (event.accepted, event.sampled_ids, event.shown_ids)} == {LENGTH}


def test_an_event_has_the_mean_entropy_that_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = StopTest.judge

    def judged(test: StopTest, draft: Tensor, entropy: Tensor) -> Verdict:
        return replace(judge(test, draft, entropy), mean_entropy=7.0)

    monkeypatch.setattr(StopTest, "judge", judged)
    steps, _ = denoise([sure(ONE)], schedule_steps=1)
    assert steps[0].event.mean_entropy == 7.0


def test_the_clock_of_a_run_goes_on_over_its_steps() -> None:
    steps, _ = denoise([unsure(ONE), unsure(ONE), sure(ONE)])
    elapsed = [event.elapsed for event in events(steps)]
    assert elapsed == sorted(elapsed)
    assert all(0 < event.seconds <= event.elapsed for event in events(steps))


def test_a_step_s_seconds_hold_what_it_is_conditioned_on_and_not_what_is_done_with_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(dynamic, "time", SimpleNamespace(perf_counter=clock))

    def soft_embedding(self: Scripted, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        clock.now += 0.5
        return DiffusionGemma.soft_embedding(self, logits, log_normalizer)

    monkeypatch.setattr(Scripted, "soft_embedding", soft_embedding)
    model = Scripted([unsure(ONE)] * 3)
    block = BlockSettings(
        number=1,
        started=clock(),
        sampler=SamplerSettings(schedule_steps=3),
        stop_rule="never",
        pad_id=tiny.PAD,
    )
    cache, seconds = KVCache(model.config, 16, torch.float32, CPU), []
    for step in dynamic_steps(model, cache, START, SeededNoise(0), block):
        seconds.append(step.event.seconds)
        clock.now += 10
    assert seconds == [0.0, 0.5, 0.5]


def test_a_block_that_is_left_early_computes_no_further_step() -> None:
    model = Scripted([unsure(ONE)])
    settings = SamplerSettings(schedule_steps=6)
    block = BlockSettings(number=1, started=0.0, sampler=settings, stop_rule="both", pad_id=tiny.PAD)
    steps = dynamic_steps(model, KVCache(model.config, 16, torch.float32, CPU), START, SeededNoise(0), block)
    next(steps)
    del steps
    assert len(model.seen) == 1
    assert model.carried == 0


@pytest.mark.parametrize("step", [1, 3])
def test_logits_that_are_no_numbers_are_an_error_that_names_the_step(step: int) -> None:
    broken = unsure(ONE)
    broken[LENGTH // 2, 1] = torch.nan
    with pytest.raises(WeightsError, match=f"the logits of block 3, step {step} are not finite"):
        denoise([unsure(ONE), unsure(OTHER), unsure(ONE)][: step - 1] + [broken])
