"""Everything besides the prompt that goes into a run has its effect: noise, settings, limits, earlier runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.conversation import Conversation
from localdiff.diffusion.noise import PairedNoise, SeededNoise
from localdiff.engine import Engine
from localdiff.errors import ContextError, UsageError, WeightsError
from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    Prefilled,
    TextCommitted,
)
from localdiff.options import GenerateOptions
from localdiff.text.template import ChatTemplate
from tests.models import tiny
from tests.models.events import end_of, of, start_of

OPTIONS = GenerateOptions(seed=7, max_tokens=20)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return tiny.engine(tmp_path)


def run(engine: Engine, prompt: Any = "abc", **values: Any) -> list[Event]:
    return list(engine.generate(prompt, dataclasses.replace(OPTIONS, **values)))


def drafts(events: Sequence[Event]) -> list[tuple[int, ...]]:
    return [step.argmax_ids for step in of(DenoiseStep, events)]


def test_the_start_says_what_the_run_will_be(engine: Engine) -> None:
    started = start_of(run(engine, cap=4))
    assert (started.max_tokens, started.canvas_length, started.vocab_size, started.max_steps) == (20, 8, 64, 4)
    assert (started.end_ids, started.pad_id, started.seed) == ((tiny.EOS, tiny.TURN_END), tiny.PAD, 7)


def test_one_end_token_may_stand_alone(tmp_path: Path) -> None:
    assert start_of(run(tiny.engine(tmp_path, eos_token_id=5))).end_ids == (5,)


def test_a_canvas_is_what_the_noise_says_and_follows_what_is_committed(engine: Engine) -> None:
    events = run(engine)
    started = of(BlockStarted, events)
    assert started[0].canvas_ids == tuple(SeededNoise(7).canvas(8, 64).tolist())
    position = start_of(events).prompt_tokens
    for block, committed in zip(started, of(BlockCommitted, events), strict=True):
        assert block.position == position
        position += len(committed.token_ids)


def test_noise_may_come_from_outside(engine: Engine) -> None:
    expected = drafts(run(engine, seed=9))
    assert drafts(list(engine.generate("abc", OPTIONS, noise=SeededNoise(9)))) == expected
    assert drafts(run(engine)) != expected


def test_what_torch_s_default_dtype_is_makes_no_difference(
    engine: Engine, another_default_dtype: Callable[[], AbstractContextManager[None]]
) -> None:
    paired = [PairedNoise(3).uniforms(5), PairedNoise(3).canvas(5, 64)]
    expected = of(DenoiseStep, run(engine))
    with another_default_dtype():
        found = of(DenoiseStep, run(engine))
        again = [PairedNoise(3).uniforms(5), PairedNoise(3).canvas(5, 64)]
    assert [(step.temperature, step.entropies, step.sampled_ids) for step in found] == [
        (step.temperature, step.entropies, step.sampled_ids) for step in expected
    ]
    assert all(map(torch.equal, again, paired))


def test_reference_noise_is_refused_in_half_precision(tmp_path: Path) -> None:
    half = tiny.engine(tmp_path, network=tiny.model().to(torch.bfloat16))
    with pytest.raises(UsageError, match="noise='reference' needs device cpu and dtype fp32, not cpu and bfloat16"):
        run(half, noise="reference")
    assert end_of(run(half)).reason in ("length", "end_of_turn")


def test_reference_noise_is_another_answer_to_the_same_seed(engine: Engine) -> None:
    assert drafts(run(engine, noise="reference")) == drafts(run(engine, noise="reference"))
    assert drafts(run(engine, noise="reference")) != drafts(run(engine))


@pytest.mark.parametrize(
    ("values", "temperatures"),
    [
        ({}, [0.4 + 0.4 * left / 6 for left in (6, 5, 4, 3, 2, 1)]),
        ({"steps": 2}, [0.8, 0.6]),
        ({"cap": 2}, [0.8, 0.4 + 0.4 * 5 / 6]),
        ({"t_min": 0.2, "t_max": 1.0, "steps": 4}, [1.0, 0.8, 0.6, 0.4]),
        ({"t_min": 0.0, "steps": 4}, [0.8, 0.6, 0.4, 0.2]),
        ({"temperature": 0.7, "steps": 2}, [0.7, 0.7]),
        ({"temperature": 0.0, "steps": 2}, [0.8, 0.6]),
    ],
)
def test_options_override_the_schedule_of_the_checkpoint(
    engine: Engine, values: dict[str, Any], temperatures: list[float]
) -> None:
    events = list(engine.generate("abc", dataclasses.replace(OPTIONS, **values, max_tokens=8), stop_rule="never"))
    assert [step.temperature for step in of(DenoiseStep, events)] == pytest.approx(temperatures)


def test_options_override_acceptance_and_confidence(engine: Engine) -> None:
    everything = of(DenoiseStep, run(engine, entropy_bound=1000.0))
    assert all(all(step.accepted) for step in everything)
    next_to_nothing = of(DenoiseStep, run(engine, entropy_bound=1e-9))
    assert all(sum(step.accepted) == 1 for step in next_to_nothing)
    easy = of(BlockCommitted, run(engine, confidence=100.0, stability=0))
    assert all((block.steps, block.reason) == (1, "converged") for block in easy)


def test_settings_that_only_clash_with_the_checkpoint_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="t_min=0.9 must be <= t_max=0.8"):
        run(engine, t_min=0.9)


def test_a_broken_generation_config_is_refused_when_the_engine_is_made(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="t_max=0 must be >= 1e-06"):
        tiny.engine(tmp_path, t_max=0)


def test_the_model_may_hold_less_than_the_context_that_was_asked_for(tmp_path: Path) -> None:
    short = tiny.engine(tmp_path, network=tiny.model(max_position_embeddings=30))
    events = list(short.generate([2] * 25, OPTIONS, stop_rule="never"))
    assert start_of(events).max_tokens == 5
    assert end_of(events).reason == "context_full"
    with pytest.raises(UsageError, match="the prompt has 30 tokens and the context holds 30") as caught:
        run(short, [2] * 30)
    assert caught.value.hint == "shorten the prompt: 30 is the most that this model takes"
    for length, hint in (
        (29, "raise `--context`, or shorten the prompt"),
        (30, "shorten the prompt: 30 is the most that this model takes"),
    ):
        with pytest.raises(UsageError, match=f"the prompt has {length} tokens and the context holds 20") as caught:
            run(short, [2] * length, context_size=20)
        assert caught.value.hint == hint


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(_text: str) -> list[int]:
        raise AssertionError("it was tokenized")

    monkeypatch.setattr(engine.tokenizer, "encode", encode)
    messages = [{"role": "user", "content": "a " * 1_000_000}]
    for prompt in messages[0]["content"], messages:
        with pytest.raises(ContextError, match="does not fit into a context of 64 tokens"):
            run(engine, prompt, context_size=64)
    with pytest.raises(ContextError, match="does not fit into a context of 64 tokens"):
        list(Conversation(engine).answer(messages, dataclasses.replace(OPTIONS, context_size=64)))


def test_thinking_is_asked_of_the_template(engine: Engine, tmp_path: Path) -> None:
    source = "<bos>{% if enable_thinking %}<|think|>{% endif %}{{ messages[0].content }}"
    (tmp_path / "chat_template.jinja").write_text(source)
    engine.template = ChatTemplate(tmp_path)
    lengths = [start_of(run(engine, think=think)).prompt_tokens for think in (False, True)]
    assert lengths == [4, 5]


def test_an_answer_does_not_depend_on_a_run_that_was_left_in_the_middle(engine: Engine, tmp_path: Path) -> None:
    expected = drafts(run(tiny.engine(tmp_path)))
    left = engine.generate("something else", OPTIONS)
    while not isinstance(next(left), DenoiseStep):
        pass
    left.close()  # type: ignore[attr-defined]
    assert drafts(run(engine)) == expected


def test_runs_of_any_length_have_one_cache(engine: Engine) -> None:
    """Graphs captured on a GPU hold the cache's addresses."""
    first = run(engine, max_tokens=8)
    cache = engine._spare[0].kv_cache
    assert cache.capacity == engine.context_size(GenerateOptions())
    run(engine, "a much longer prompt", max_tokens=40)
    run(engine, max_tokens=8, context_size=40)
    again = run(engine, max_tokens=8)
    assert drafts(again) == drafts(first)
    assert {event.cached_tokens for event in of(Prefilled, again)} == {0}
    assert engine._spare[0].kv_cache is cache


@pytest.mark.parametrize("loaded_for", [8, 1000])
def test_of_a_longer_prompt_only_the_rest_is_encoded(engine: Engine, loaded_for: int) -> None:
    """Its cache needs more room than that of the first run."""
    engine._context_size = loaded_for
    prefix_cache, ids = engine.new_prefix_cache(), [10, 11, 12]
    for _ in range(3):
        held = len(prefix_cache.ids)
        options = dataclasses.replace(OPTIONS, context_size=200)
        events = list(engine.generate(ids, options, prefix_cache=prefix_cache))
        assert {event.cached_tokens for event in of(Prefilled, events)} == {held}
        assert len(prefix_cache.ids) > held
        ids = [*prefix_cache.ids, 11, 12]


def test_it_is_not_kept_beside_that_of_a_conversation(engine: Engine) -> None:
    run(engine, max_tokens=8)
    assert engine._spare
    engine.new_prefix_cache()
    assert not engine._spare


def test_a_prefix_cache_of_a_conversation_serves_no_other_run(engine: Engine) -> None:
    prefix_cache = engine.new_prefix_cache()
    list(engine.generate("abc", OPTIONS, prefix_cache=prefix_cache))
    held = prefix_cache.ids
    run(engine, max_tokens=8)
    assert held and prefix_cache.ids == held


@pytest.mark.parametrize("seed", range(5))
def test_the_text_is_the_decoding_of_the_ids_without_control_tokens(engine: Engine, seed: int) -> None:
    """Random weights produce anything: control tokens in any order, channels that never close, ids without a token."""
    events = run(engine, seed=seed, max_tokens=60)
    finished = end_of(events)
    texts = of(TextCommitted, events)
    assert all(text.text for text in texts)
    shown = "".join(text.text for text in texts)
    assert not any(control in shown for control in tiny.CONTROL)
    if tiny.CONTROL.index("<|channel>") not in finished.token_ids:
        assert shown == engine.tokenizer.decode(finished.token_ids)
    committed = [token for block in of(BlockCommitted, events) for token in block.token_ids]
    assert finished.token_ids == tuple(token for token in committed if token not in (tiny.EOS, tiny.TURN_END))


@pytest.mark.parametrize("values", [{}, {"noise": "reference"}, {"temperature": 0.0}], ids=str)
def test_weights_that_are_no_numbers_are_an_error_with_every_noise(tmp_path: Path, values: dict[str, Any]) -> None:
    network = tiny.model()
    network.norm.weight[3] = torch.nan
    with pytest.raises(WeightsError, match="the logits of block 1, step 1 are not finite"):
        run(tiny.engine(tmp_path, network=network), **values)
