"""The engine: events in order, ends where it must, and leaves nothing behind.

Runs a tiny model on its real weights, or one whose logits the test writes, where a certain draft is needed.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from localdiff.engine import Engine
from localdiff.engine.prefix_cache import PrefixCache
from localdiff.engine.stats import StatsKeeper
from localdiff.errors import ContextError, UsageError, WeightsError
from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    Prefilled,
    RunFinished,
    RunStarted,
    TextCommitted,
    text_of,
)
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import GenerateOptions
from localdiff.text.tokenizer import Tokenizer
from tests.models import tiny
from tests.models.events import end_of, of, start_of

A, B = (len(tiny.CONTROL) + tiny.LETTERS.index(letter) for letter in "ab")
END, PAD = tiny.TURN_END, tiny.PAD


class Scripted(DiffusionGemma):
    """A real model that answers with drafts from a script: one list of ids per step, the last one again and again."""

    drafts: Sequence[Sequence[int]] = ()
    certainty = 100.0

    def denoise(
        self,
        canvas_ids: torch.Tensor,
        cache: KVCache,
        soft: torch.Tensor | None = None,
        commit_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert commit_ids is None, "what this engine commits has a pass of its own"
        self.calls = getattr(self, "calls", 0) + 1
        draft = torch.tensor(self.drafts[min(self.calls, len(self.drafts)) - 1])
        return torch.nn.functional.one_hot(draft, self.config.vocab_size).float() * self.certainty


def scripted(directory: Path, *drafts: Sequence[int], certainty: float = 100.0, **generation: Any) -> Engine:
    network = Scripted(tiny.config())
    network.load_state_dict(tiny.model().state_dict())
    network.drafts, network.certainty = drafts, certainty
    return tiny.engine(directory, network=network.requires_grad_(False), **generation)


def options(**values: Any) -> GenerateOptions:
    return GenerateOptions(**{"seed": 7, "max_tokens": 20} | values)


def without_times(event: Event) -> dict[str, Any]:
    times = {"seconds", "elapsed", "stats"}
    return {key: value for key, value in dataclasses.asdict(event).items() if key not in times}


def test_events_come_in_their_order_and_count_from_one(tmp_path: Path) -> None:
    events = list(tiny.engine(tmp_path).generate("abc", options()))
    kinds = [type(event) for event in events if not isinstance(event, TextCommitted)]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunFinished
    prefills = of(Prefilled, events)
    assert kinds[1 : 1 + len(prefills)] == [Prefilled] * len(prefills)
    assert [event.done for event in prefills] == [*range(4, prefills[-1].total, 4), prefills[-1].total]
    rest = kinds[1 + len(prefills) : -1]
    for number, block in enumerate(of(BlockCommitted, events), start=1):
        assert block.block == number
        assert rest[: block.steps + 2] == [BlockStarted, *[DenoiseStep] * block.steps, BlockCommitted]
        rest = rest[block.steps + 2 :]
    assert not rest
    for number in range(1, len(of(BlockCommitted, events)) + 1):
        steps = [event.step for event in of(DenoiseStep, events) if event.block == number]
        assert steps == list(range(1, len(steps) + 1))


def test_alternatives_are_reported_where_asked_for_and_change_nothing(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    plain = of(DenoiseStep, engine.generate("abc", options()))
    asked = of(DenoiseStep, engine.generate("abc", options(record_top_k=3)))
    assert [step.argmax_ids for step in asked] == [step.argmax_ids for step in plain]
    assert {(step.top_ids, step.top_probs) for step in plain} == {((), ())}
    for step in asked:
        assert [len(row) for row in step.top_ids] == [len(row) for row in step.top_probs] == [3] * tiny.CANVAS
        assert tuple(row[0] for row in step.top_probs) == step.argmax_probs
        assert all(list(row) == sorted(row, reverse=True) for row in step.top_probs)


def test_a_step_shows_what_was_decided(tmp_path: Path) -> None:
    events = list(tiny.engine(tmp_path).generate("abc", options()))
    shown = of(BlockStarted, events)[0].canvas_ids
    for step in of(DenoiseStep, events):
        if step.step == 1:
            shown = of(BlockStarted, events)[step.block - 1].canvas_ids
        assert step.shown_ids == shown
        assert len({len(getattr(step, name)) for name in ("argmax_ids", "argmax_probs", "entropies", "accepted")}) == 1
        assert step.mean_entropy == pytest.approx(sum(step.entropies) / tiny.CANVAS, abs=1e-5)
        assert all(0 < probability <= 1 for probability in step.argmax_probs)
        assert step.confident is (step.mean_entropy < 0.005)
        following = [
            event for event in of(DenoiseStep, events) if (event.block, event.step) == (step.block, step.step + 1)
        ]
        if following:
            shown = following[0].shown_ids
            kept = [a == b for a, b in zip(step.sampled_ids, shown, strict=True)]
            assert all(same for same, accepted in zip(kept, step.accepted, strict=True) if accepted)
    temperatures = [step.temperature for step in of(DenoiseStep, events) if step.block == 1]
    assert temperatures == sorted(temperatures, reverse=True)


def test_events_are_plain_values_that_json_can_hold(tmp_path: Path) -> None:
    for event in tiny.engine(tmp_path).generate("abc", options()):
        json.dumps(dataclasses.asdict(event))
        for value in _leaves(dataclasses.asdict(event)):
            assert value is None or type(value) in (int, float, str, bool)
        assert type(event).__dataclass_params__.frozen  # type: ignore[attr-defined]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def test_a_seed_is_an_answer_and_the_engine_keeps_no_state(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    first = [without_times(event) for event in engine.generate("abc", options())]
    list(engine.generate("something longer than that", options(seed=1)))
    assert [without_times(event) for event in engine.generate("abc", options())] == first
    assert [without_times(event) for event in tiny.engine(tmp_path).generate("abc", options())] == first
    assert [without_times(event) for event in engine.generate("abc", options(seed=8))] != first


def test_a_seed_is_drawn_and_reported_where_none_was_given(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    seeds = {start_of(engine.generate("a", options(seed=None))).seed for _ in range(3)}
    assert len(seeds) == 3
    assert start_of(engine.generate("a", options(seed=0))).seed == 0


@pytest.mark.parametrize("limit", [1, 7, 8, 9, 20])
def test_it_ends_at_max_tokens_exactly(tmp_path: Path, limit: int) -> None:
    events = list(scripted(tmp_path, [A] * 8).generate("x", options(max_tokens=limit)))
    finished = end_of(events)
    assert finished.reason == "length"
    assert finished.token_ids == (A,) * limit
    assert text_of(events) == "a" * limit
    blocks = of(BlockStarted, events)
    assert len(blocks) == blocks[0].max_blocks == -(-limit // 8)


def test_it_ends_at_an_end_token_inside_a_block(tmp_path: Path) -> None:
    events = list(scripted(tmp_path, [A, B, END, A, A, END, PAD, PAD]).generate("x", options()))
    finished = end_of(events)
    assert finished.reason == "end_of_turn"
    assert finished.token_ids == (A, B)
    assert of(BlockCommitted, events)[0].token_ids == (A, B, END)
    assert text_of(events) == "ab"
    assert (finished.stats.tokens, finished.stats.commit_passes) == (2, 0)


def test_a_block_of_padding_ends_the_turn_and_is_not_kept(tmp_path: Path) -> None:
    """Such a block runs out of steps, and the next one would, too."""
    events = list(scripted(tmp_path, [PAD] * 8).generate("x", options(max_tokens=500)))
    assert end_of(events).reason == "end_of_turn"
    assert end_of(events).token_ids == ()
    assert [(block.token_ids, block.reason) for block in of(BlockCommitted, events)] == [((), "step_limit")]


@pytest.mark.parametrize(("limit", "reason"), [(2, "end_of_turn"), (1, "length"), (3, "end_of_turn")])
def test_an_end_token_right_at_the_limit_is_an_end_of_turn(tmp_path: Path, limit: int, reason: str) -> None:
    finished = end_of(scripted(tmp_path, [A, B, END] + [PAD] * 5).generate("x", options(max_tokens=limit)))
    assert finished.reason == reason
    assert finished.token_ids == (A, B)[:limit]


@pytest.mark.parametrize(("max_tokens", "reason"), [(11, "length"), (12, "context_full"), (500, "context_full")])
def test_it_ends_where_the_context_does(tmp_path: Path, max_tokens: int, reason: str) -> None:
    engine = scripted(tmp_path, [A] * 8)
    length = start_of(engine.generate("x", options())).prompt_tokens
    events = list(engine.generate("x", options(context_size=length + 11, max_tokens=max_tokens)))
    finished = end_of(events)
    assert finished.reason == reason
    assert len(finished.token_ids) == 11
    assert start_of(events).max_tokens == 11


def test_a_run_may_have_more_context_than_the_engine_was_loaded_for(tmp_path: Path) -> None:
    engine = scripted(tmp_path, [A] * 8)
    engine._context_size = 30
    finished = end_of(engine.generate("x", options(context_size=100, max_tokens=40)))
    assert finished.token_ids == (A,) * 40


@pytest.mark.parametrize("room", [0, -1])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(tmp_path: Path, room: int) -> None:
    engine = scripted(tmp_path, [A] * 8)
    length = start_of(engine.generate("x", options())).prompt_tokens
    with pytest.raises(UsageError, match=f"the prompt has {length} tokens and the context holds {length + room}"):
        list(engine.generate("x", options(context_size=length + room)))


def test_an_empty_prompt_of_ids_is_refused(tmp_path: Path) -> None:
    for empty in ([], "", "  \n"):
        with pytest.raises(UsageError, match="the prompt is empty") as caught:
            list(tiny.engine(tmp_path).generate(empty, options()))
        assert caught.value.hint == "give some text"


def test_a_run_has_the_context_that_the_engine_was_loaded_for() -> None:
    engine = Engine.load("demo", device="cpu", offline=True, context_size=numpy.int64(40))
    assert (engine.context_size(options()), engine.context_size(options(context_size=50))) == (40, 50)
    with pytest.raises(ContextError, match=r"the context holds 40"):
        list(engine.generate([2] * 40, options()))
    started, *_ = engine.generate([2] * 30, options(max_tokens=100))
    assert isinstance(started, RunStarted) and started.max_tokens == 10 and type(started.max_tokens) is int


@pytest.mark.parametrize(
    "given", [{"max_memory": "10GB"}, {"max_memory": -1}, {"context_size": 0}, {"context_size": 1.5}]
)
def test_amounts_that_are_none_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be a whole number >= 1"):
        Engine.load("demo", **given)


def test_ids_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    ids = engine.prompt_ids([numpy.int64(2), numpy.int32(5)], options())
    assert ids == [2, 5] and {type(token) for token in ids} == {int}


@pytest.mark.parametrize("beyond", [64, -1])
def test_ids_beyond_the_embeddings_are_refused(tmp_path: Path, beyond: int) -> None:
    with pytest.raises(UsageError, match=f"{beyond} is not a token id of this model"):
        list(tiny.engine(tmp_path).generate([2, beyond, 3], options()))


def test_ids_beyond_the_embeddings_are_the_tokenizer_s_fault_where_it_gave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny.engine(tmp_path)
    monkeypatch.setattr(engine.template, "encode", lambda *_args, **_options: [2, 64, 3])
    with pytest.raises(WeightsError, match="the tokenizer gives id 64, the model has 64 embeddings"):
        list(engine.generate("hi", options()))


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ([1.5], "float"),
        ([True], "bool"),
        ([None], "NoneType"),
        ([2, {"role": "user", "content": "hi"}], "int"),
        ([{"role": "user", "content": "hi"}, "hi"], "str"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, prompt: Any, kind: str) -> None:
    with pytest.raises(UsageError, match=f"this one contains an? `{kind}`"):
        list(tiny.engine(tmp_path).generate(prompt, options()))


def test_bytes_are_not_text(tmp_path: Path) -> None:
    for prompt in b"hi", bytearray(b"hi"):
        with pytest.raises(UsageError, match="the prompt is bytes, not text"):
            list(tiny.engine(tmp_path).generate(prompt, options()))


def test_a_run_that_another_one_has_overtaken_does_not_go_on(tmp_path: Path) -> None:
    engine = scripted(tmp_path, [A] * 8, [A] * 8)
    prefix_cache = engine.new_prefix_cache()
    overtaken = engine.generate("hi", options(), prefix_cache=prefix_cache)
    next(overtaken)
    finished = list(engine.generate("hi", options(), prefix_cache=prefix_cache))[-1]
    with pytest.raises(UsageError, match="another run started on it, before this one was over"):
        next(overtaken)
    assert isinstance(finished, RunFinished)


def test_a_run_waits_for_what_another_thread_computes_on_its_prefix_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two passes at once would leave positions of both in the cache."""
    engine = tiny.engine(tmp_path)
    expected = end_of(engine.generate("b", options())).token_ids
    prefix_cache, encode = engine.new_prefix_cache(), DiffusionGemma.encode
    within, further, begins, start = threading.Event(), threading.Event(), threading.Event(), PrefixCache.start_run

    def wait_once(network: DiffusionGemma, *inputs: Any) -> None:
        if not within.is_set():
            within.set()
            further.wait(60)
        encode(network, *inputs)

    def overtaken_run() -> None:
        for event in engine.generate("a", options(), prefix_cache=prefix_cache):
            if isinstance(event, Prefilled):
                assert begins.wait(60)  # otherwise this thread might be done before the other one gets a turn

    def start_run(*arguments: Any) -> int:
        cached_tokens = start(prefix_cache, *arguments)
        if prefix_cache.rewinds == 2:
            begins.set()
        return cached_tokens

    monkeypatch.setattr(DiffusionGemma, "encode", wait_once)
    monkeypatch.setattr(prefix_cache, "start_run", start_run)
    with ThreadPoolExecutor() as threads:
        overtaken = threads.submit(overtaken_run)
        within.wait(60)
        other = threads.submit(lambda: end_of(engine.generate("b", options(), prefix_cache=prefix_cache)))
        time.sleep(0.1)
        begun = prefix_cache.rewinds
        further.set()
        assert begun == 1, "the other one has begun meanwhile"
        assert other.result().token_ids == expected
        with pytest.raises(UsageError, match="another run started on it"):
            overtaken.result()
    assert prefix_cache.kv_cache.length == len(prefix_cache.ids)


@pytest.mark.parametrize("kind", [Prefilled, BlockStarted, DenoiseStep, BlockCommitted])
def test_a_run_whose_prefix_cache_was_cleared_does_not_go_on(tmp_path: Path, kind: type[Event]) -> None:
    """Whatever it encoded after that would be at wrong positions."""
    engine = scripted(tmp_path, [A] * 8)
    prefix_cache = engine.new_prefix_cache()
    events = engine.generate("hi", options(), prefix_cache=prefix_cache)
    while not isinstance(next(events), kind):
        pass
    prefix_cache.clear()
    with pytest.raises(UsageError, match="this prefix cache was cleared"):
        next(events)
    assert prefix_cache.ids == ()
    assert isinstance(list(engine.generate("hi", options(), prefix_cache=prefix_cache))[-1], RunFinished)


def test_the_next_run_may_start_as_soon_as_one_has_said_that_it_is_finished(tmp_path: Path) -> None:
    engine = scripted(tmp_path, [A] * 8)
    prefix_cache = engine.new_prefix_cache()
    finished = []
    for event in engine.generate("hi", options(), prefix_cache=prefix_cache):
        if isinstance(event, RunFinished):
            *_, last = engine.generate("hi", options(), prefix_cache=prefix_cache)
            finished += [event, last]
    first, second = finished
    assert isinstance(second, RunFinished) and second.reason == first.reason


def test_a_prompt_may_be_text_messages_or_ids(tmp_path: Path) -> None:
    engine = scripted(tmp_path, [A] * 8)
    ids = engine.tokenizer.encode("<bos><|turn>user\nhi<turn|>\n<|turn>model\n")
    for prompt in ("hi", [{"role": "user", "content": "hi"}], ids):
        assert start_of(engine.generate(prompt, options())).prompt_tokens == len(ids)
    with_system = start_of(engine.generate("hi", options(system="be brief")))
    assert with_system.prompt_tokens == len(
        engine.tokenizer.encode("<bos><|turn>system\nbe brief<turn|>\n<|turn>user\nhi<turn|>\n<|turn>model\n")
    )


@pytest.mark.parametrize("given", [{"system": "Be brief."}, {"think": True}])
def test_options_that_shape_messages_are_refused_for_ids(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="token ids already"):
        next(tiny.engine(tmp_path).generate([1, 2, 3], options(**given)))


def test_two_runs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    alone = [[without_times(event) for event in engine.generate(prompt, options())] for prompt in ("abc", "cba")]
    both = zip_longest(engine.generate("abc", options()), engine.generate("cba", options()))
    together = [[without_times(event) for event in events if event is not None] for events in zip(*both, strict=True)]
    assert together == alone


def test_a_block_that_runs_out_of_steps_is_marked(tmp_path: Path) -> None:
    flipping = scripted(tmp_path, *([[A] * 8, [B] * 8] * 10))
    block = of(BlockCommitted, flipping.generate("x", options(max_tokens=8)))[0]
    assert (block.reason, block.steps) == ("step_limit", 6)
    capped = scripted(tmp_path, *([[A] * 8, [B] * 8] * 10))
    block = of(BlockCommitted, capped.generate("x", options(max_tokens=8, cap=3)))[0]
    assert (block.reason, block.steps, block.token_ids) == ("step_limit", 3, (A,) * 8)


def test_a_sure_draft_stops_at_its_second_step(tmp_path: Path) -> None:
    block = of(BlockCommitted, scripted(tmp_path, [A] * 8).generate("x", options(max_tokens=8)))[0]
    assert (block.reason, block.steps) == ("converged", 2)


def test_at_temperature_zero_the_draft_is_what_is_sampled(tmp_path: Path) -> None:
    for step in of(DenoiseStep, tiny.engine(tmp_path).generate("abc", options(temperature=0.0))):
        assert step.sampled_ids == step.argmax_ids


def test_a_thought_is_told_from_the_answer(tmp_path: Path) -> None:
    opened, closed = (tiny.CONTROL.index(name) for name in ("<|channel>", "<channel|>"))
    newline = len(tiny.CONTROL)
    draft = [opened, B, newline, B, B, closed, A, END]
    events = list(scripted(tmp_path, draft).generate("x", options()))
    assert text_of(events, "thought") == "bb"
    assert text_of(events) == "a"
    begun = list(scripted(tmp_path, [*draft[3:], END, END, END]).generate(draft[:3], options()))
    assert (text_of(begun, "thought"), text_of(begun)) == ("bb", "a"), "where the prompt ends in a thought, too"


def test_text_that_was_held_back_comes_at_the_end(tmp_path: Path) -> None:
    engine, path = scripted(tmp_path, [A, B, A, END, PAD, PAD, PAD, PAD]), tmp_path / "tokenizer.json"
    strips = {"type": "Strip", "content": " ", "start": 1, "stop": 0}  # what it strips depends on what comes before
    backend = json.loads(path.read_text()) | {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, strips]}}
    path.write_text(json.dumps(backend))
    engine.tokenizer = Tokenizer(tmp_path)
    *_, text, finished = engine.generate("x", options())
    assert text == TextCommitted(block=1, channel="answer", text="aba") and isinstance(finished, RunFinished)


def cancel_when(
    test: Callable[[Event], bool], engine: Engine, *, prefix_cache: PrefixCache | None = None, **values: Any
) -> list[Event]:
    cancel, events = threading.Event(), []
    for event in engine.generate("abcdefgh", options(**values), cancel=cancel, prefix_cache=prefix_cache):
        events.append(event)
        if test(event):
            cancel.set()
    return events


def test_a_cancel_stops_between_chunks_of_the_prompt(tmp_path: Path) -> None:
    events = cancel_when(lambda event: isinstance(event, Prefilled), tiny.engine(tmp_path))
    assert len(of(Prefilled, events)) == 1
    assert not of(BlockStarted, events)
    assert end_of(events).reason == "cancelled"


def test_a_cancel_before_the_start_computes_nothing(tmp_path: Path) -> None:
    events = cancel_when(lambda event: isinstance(event, RunStarted), tiny.engine(tmp_path))
    assert [type(event) for event in events] == [RunStarted, RunFinished]


@pytest.mark.parametrize("kind", [BlockCommitted, TextCommitted])
def test_a_cancel_between_two_blocks_computes_nothing_more(tmp_path: Path, kind: type[Event]) -> None:
    engine = scripted(tmp_path, [A] * 8)
    prefix_cache = engine.new_prefix_cache()
    events = cancel_when(lambda event: isinstance(event, kind), engine, prefix_cache=prefix_cache)
    assert len(of(BlockStarted, events)) == 1
    finished = end_of(events)
    assert (finished.reason, finished.token_ids, finished.stats.commit_passes) == ("cancelled", (A,) * 8, 0)
    assert text_of(events) == "a" * 8
    assert len(prefix_cache.ids) == start_of(events).prompt_tokens


def test_a_cancel_while_a_block_is_written_into_the_cache_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, cancel = scripted(tmp_path, [A] * 8), threading.Event()
    monkeypatch.setattr(StatsKeeper, "commit_done", lambda _: cancel.set())
    events = list(engine.generate("x", options(), cancel=cancel))
    assert [block.reason for block in of(BlockCommitted, events)] == ["converged"]
    assert (len(of(BlockStarted, events)), end_of(events).reason) == (1, "cancelled")


def test_a_cancel_drops_the_draft_and_keeps_committed_blocks(tmp_path: Path) -> None:
    events = cancel_when(
        lambda event: isinstance(event, DenoiseStep) and (event.block, event.step) == (2, 1),
        scripted(tmp_path, [A] * 8),
    )
    assert [(block.reason, block.steps) for block in of(BlockCommitted, events)] == [("converged", 2), ("cancelled", 1)]
    finished = end_of(events)
    assert (finished.reason, finished.token_ids) == ("cancelled", (A,) * 8)
    assert text_of(events) == "a" * 8


@pytest.mark.parametrize(("last", "reason"), [(A, "cancelled"), (END, "end_of_turn")])
def test_a_cancel_with_the_last_step_keeps_the_block(tmp_path: Path, last: int, reason: str) -> None:
    engine = scripted(tmp_path, [*[A] * 7, last])
    events = cancel_when(lambda event: isinstance(event, DenoiseStep) and event.step == 2, engine)
    assert [block.reason for block in of(BlockCommitted, events)] == ["converged"]
    assert end_of(events).reason == reason
    assert len(end_of(events).token_ids) == 8 - (last == END)


def test_a_cancel_with_the_last_step_there_is_keeps_the_block(tmp_path: Path) -> None:
    """It is as final as one that converged: stopping now saves no step."""
    engine = scripted(tmp_path, *([[A] * 8, [B] * 8] * 10))
    events = cancel_when(lambda event: isinstance(event, DenoiseStep) and event.step == 3, engine, cap=3)
    assert [(block.reason, block.token_ids) for block in of(BlockCommitted, events)] == [("step_limit", (A,) * 8)]
    finished = end_of(events)
    assert (finished.reason, finished.token_ids) == ("cancelled", (A,) * 8)
    assert text_of(events) == "a" * 8


def test_the_figures_are_counted_once_and_agree(tmp_path: Path) -> None:
    events = list(scripted(tmp_path, [A] * 8).generate("x", options(max_tokens=20)))
    stats = end_of(events).stats
    assert stats.denoise_passes == len(of(DenoiseStep, events)) == sum(block.steps for block in stats.blocks)
    for number, block in enumerate(stats.blocks, start=1):
        assert block.seconds >= sum(step.seconds for step in of(DenoiseStep, events) if step.block == number)
    assert stats.commit_passes == 2  # three blocks; the last one is not written
    assert stats.tokens == 20
    assert stats.tokens_per_step == 20 / stats.denoise_passes
    assert stats.tok_per_s == pytest.approx(20 / stats.seconds)
    assert stats.seconds >= sum(block.seconds for block in stats.blocks) > 0
    assert stats.prompt_seconds == of(Prefilled, events)[-1].seconds
    assert stats.peak_bytes is None


def test_the_cache_holds_prompt_and_committed_blocks(tmp_path: Path) -> None:
    engine = scripted(tmp_path, [A] * 8)
    prefix_cache = engine.new_prefix_cache()
    events = list(engine.generate("x", options(max_tokens=20), prefix_cache=prefix_cache))
    assert prefix_cache.kv_cache.length == start_of(events).prompt_tokens + 16
    assert len(prefix_cache.ids) == prefix_cache.kv_cache.length
    assert prefix_cache.ids[-16:] == (A,) * 16


def test_a_checkpoint_without_end_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="lacks `eos_token_id`"):
        tiny.engine(tmp_path, eos_token_id=None)


@pytest.mark.parametrize("ids", ["1", 1.0, True, [], ["1"], [1, 2.0], [1, False], {"1": 2}], ids=repr)
def test_end_tokens_that_are_no_ids_are_refused(tmp_path: Path, ids: Any) -> None:
    with pytest.raises(WeightsError, match="eos_token_id=.* must be a whole number or a list of them"):
        tiny.engine(tmp_path, eos_token_id=ids)
