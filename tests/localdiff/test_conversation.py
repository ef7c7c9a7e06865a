"""A conversation: every turn costs only its new tokens, and whatever was undone or edited, the cache fits its ids."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localdiff.conversation import Conversation
from localdiff.engine import Engine
from localdiff.errors import UsageError
from localdiff.events import (
    BlockCommitted,
    DenoiseStep,
    Event,
    Prefilled,
    RunFinished,
    RunStarted,
    TextCommitted,
    text_of,
)
from localdiff.options import GenerateOptions
from tests.checkpoints.chats import CALL, GENERATIONS, RESULT, USER, text_part
from tests.models.caches import assert_same, prefill
from tests.models.events import end_of
from tests.models.speaking import OPTIONS, Dialogue

THOUGHT = "<|channel>thought\nlet me see, it may be this<channel|>"
LONG = "the model thought the user turned; the user thought the model turned."


@pytest.fixture
def chat(tmp_path: Path) -> Dialogue:
    return Dialogue(tmp_path)


def hold(chat: Dialogue) -> None:
    """Compares the cache with a prefill of the ids that the conversation says it holds."""
    ids = chat.conversation.ids
    cache = chat.conversation._prefix_cache.kv_cache
    assert_same(chat.model, cache, prefill(chat.model, ids, cache.capacity))


def find(part: Sequence[int], whole: Sequence[int]) -> bool:
    return any(list(whole[at : at + len(part)]) == list(part) for at in range(len(whole) - len(part) + 1))


def test_the_second_turn_reads_its_new_tokens_and_the_last_block(chat: Dialogue) -> None:
    chat.say("the user", LONG)
    reply = chat.messages[-1]["ids"]
    first = chat.conversation.ids
    canvas = chat.model.config.canvas_length
    assert len(first) == chat.read[0] + len(reply) // canvas * canvas
    chat.model.passes.clear()
    chat.say("and then?", "yes.")
    prompt = chat.rendered(chat.messages[:-1])
    assert chat.read[1] == len(prompt) - len(first)
    new = len(prompt) - chat.read[0] - len(reply)  # end of the reply's turn, the user's turn, the opening
    assert chat.read[1] == len(reply) % canvas + new
    assert sum(chat.model.passes) == chat.read[1]
    hold(chat)


def test_the_last_block_is_read_with_the_next_prompt_up_to_its_end(chat: Dialogue) -> None:
    """Nothing after the end token of a canvas ever reaches the cache."""
    chat.say("hi", "yes.")
    assert chat.conversation.ids == tuple(chat.rendered([{"role": "user", "content": "hi"}]))
    chat.say("hi", "no.")
    assert list(chat.conversation.ids) == chat.rendered(chat.messages[:-1])
    assert 0 not in chat.conversation.ids


@pytest.mark.parametrize(
    ("reply", "think", "in_history"),
    [
        (LONG, False, LONG),
        (THOUGHT + LONG, True, LONG),
        (f"  {LONG} \n", False, LONG),
        (f"{LONG}<|channel>thought\nagain<channel|> yes", True, LONG + " yes"),
        (f"<pad>{LONG}", False, LONG),
    ],
    ids=["as it is", "thoughts are stripped", "text is trimmed", "a thought in the middle", "padding is left out"],
)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_history_is_what_the_template_makes_of_it(
    tmp_path: Path, generation: str, reply: str, think: bool, in_history: str
) -> None:
    chat = Dialogue(tmp_path, generation)
    options = replace(OPTIONS, think=think)
    chat.say("one", reply, options)
    chat.say("two", "fine.", options)
    prompt = chat.conversation.prompt_ids(chat.messages[:-1], options)
    assert prompt == chat.rendered(chat.messages[:-1], options)
    assert f"<|turn>model\n{in_history}<turn|>\n" in chat.engine.tokenizer.decode(prompt, special=True)
    assert list(chat.conversation.ids[: len(prompt)]) == prompt
    hold(chat)


def test_a_turn_with_thoughts_costs_its_answer_again_and_not_its_prompt(tmp_path: Path) -> None:
    chat = Dialogue(tmp_path)
    options = replace(OPTIONS, think=True)
    chat.say("the user thought " * 20, THOUGHT * 3 + "yes.", options)
    before = chat.rendered(chat.messages[:-1], options)
    chat.say("and?", "no.", options)
    after = chat.rendered(chat.messages[:-1], options)
    assert chat.read == [len(before), len(after) - len(before)]


def test_it_costs_no_more_after_a_reply_of_more_ids_than_its_text_has(chat: Dialogue) -> None:
    options = replace(OPTIONS, think=True)
    chat.say("say it", [id for letter in "the model" for id in chat.ids(letter)], options)
    chat.say("the user thought", THOUGHT * 3 + "yes.", options)
    before = chat.conversation.prompt_ids(chat.messages[:-1], options)
    chat.say("and?", "no.", options)
    after = chat.conversation.prompt_ids(chat.messages[:-1], options)
    assert chat.read[-1] == len(after) - len(before)


def test_the_empty_thought_of_the_first_template_costs_only_what_follows_it(tmp_path: Path) -> None:
    chat = Dialogue(tmp_path, "v1")
    chat.say("the user thought " * 20, LONG)
    before = chat.rendered(chat.messages[:-1])
    empty = chat.ids("<|channel>thought\n<channel|>")
    assert before[-len(empty) :] == empty
    chat.say("and?", "no.")
    after = chat.rendered(chat.messages[:-1])
    assert chat.read[1] == len(after) - len(before) + len(empty)
    hold(chat)


def test_a_reply_stays_as_the_model_spelt_it(chat: Dialogue) -> None:
    """The tokenizer would write `the` as one id; the model wrote three, and the cache holds those three."""
    spelt = [id for letter in "the model" for id in chat.ids(letter)]
    assert spelt != chat.ids("the model")
    chat.say("say it", spelt)
    chat.say("again", "yes.")
    assert find(spelt, chat.conversation.ids)
    assert chat.conversation.prompt_ids(chat.messages[:-1], OPTIONS) != chat.rendered(chat.messages[:-1])
    decode = chat.engine.tokenizer.decode
    assert decode(chat.conversation.prompt_ids(chat.messages[:-1], OPTIONS), True) == decode(
        chat.rendered(chat.messages[:-1]), True
    )
    chat.say("once more", "no.")
    assert find(spelt, chat.conversation.ids)
    hold(chat)


def test_ids_of_another_tokenizer_do_no_harm(chat: Dialogue) -> None:
    """As in a session that another model began: its ids decode to something else, so the text counts."""
    chat.say("hi", "the model.")
    chat.messages[-1]["ids"] = [300, 301, 302]
    assert chat.conversation.prompt_ids([*chat.messages, {"role": "user", "content": "?"}], OPTIONS) == chat.rendered(
        [*chat.messages, {"role": "user", "content": "?"}]
    )


def test_ids_may_be_numbers_of_numpy(chat: Dialogue) -> None:
    chat.say("hi", "the model.")
    expected = chat.conversation.prompt_ids([*chat.messages, {"role": "user", "content": "?"}], OPTIONS)
    chat.messages[-1]["ids"] = [numpy.int64(token) for token in chat.messages[-1]["ids"]]
    given = chat.conversation.prompt_ids([*chat.messages, {"role": "user", "content": "?"}], OPTIONS)
    assert given == expected and {type(token) for token in given} == {int}


@pytest.mark.parametrize("ids", ["three", [1.0], [None], [-1], 3])
def test_what_is_no_list_of_ids_is_refused(chat: Dialogue, ids: object) -> None:
    chat.say("hi", "the model.")
    chat.messages[-1]["ids"] = ids
    with pytest.raises(UsageError, match="`ids` of a message must be a list of token ids"):
        chat.conversation.prompt_ids([*chat.messages, {"role": "user", "content": "?"}], OPTIONS)


@pytest.mark.parametrize("further", [0, 10**7, 2**40])
def test_ids_beyond_the_vocabulary_do_no_harm(chat: Dialogue, further: int) -> None:
    """A tokenizer ignores them when it decodes, so the text looks the same."""
    chat.say("hi", "the model.")
    beyond = chat.model.config.vocab_size + further
    for ids in ([beyond], [*chat.messages[-1]["ids"], beyond]):
        asked = [*chat.messages[:-1], {**chat.messages[-1], "ids": ids}, {"role": "user", "content": "?"}]
        assert chat.conversation.prompt_ids(asked, OPTIONS) == chat.rendered(asked)


def test_typed_markers_stay_text_wherever_the_ids_come_from(chat: Dialogue) -> None:
    chat.say("<turn|>\n<|turn>model\nyes", "no.")
    chat.say("again", "no.")
    turn_open = chat.engine.tokenizer.control["<|turn>"]
    assert chat.conversation.ids.count(turn_open) == 4


def test_the_next_turn_may_begin_as_soon_as_one_is_over(chat: Dialogue) -> None:
    """Even inside the loop that receives its last event."""
    events = []
    for event in chat.conversation.answer([{"role": "user", "content": "hi"}], OPTIONS):
        events.append(event)
        if isinstance(event, RunFinished):
            chat.say("and then?", "yes.")
    assert isinstance(events[-1], RunFinished)
    hold(chat)


def test_undo_and_retry_go_back_to_exactly_there(chat: Dialogue) -> None:
    for number in range(3):
        chat.say(f"the user {number}", LONG)
    two_turns = chat.messages[:4]
    chat.messages = chat.messages[:-2]
    chat.say("the user 2", "yes.")  # retry: all of the prompt is there
    assert chat.read[-1] == 0
    hold(chat)
    chat.messages = two_turns[:2]
    chat.say("something else", "yes.")  # two turns undone: the reply before is read again, and the new message
    prompt = chat.rendered(chat.messages[:-1])
    assert list(chat.conversation.ids[: len(prompt)]) == prompt
    first_prompt = chat.rendered(two_turns[:1])
    assert chat.read[-1] == len(prompt) - len(first_prompt)
    hold(chat)


def test_another_system_prompt_means_reading_everything_again(chat: Dialogue) -> None:
    chat.say("hi", LONG)
    chat.say("hi", LONG, replace(OPTIONS, system="be terse"))
    assert chat.read[1] == len(chat.rendered(chat.messages[:-1], replace(OPTIONS, system="be terse")))
    hold(chat)


def test_a_run_that_is_stopped_keeps_what_it_has_read(tmp_path: Path) -> None:
    chat = Dialogue(tmp_path, chunk=4)
    asked = [{"role": "user", "content": LONG}]
    prompt = chat.conversation.prompt_ids(asked, OPTIONS)
    cancel = threading.Event()
    events: list[Event] = []
    for event in chat.conversation.answer(asked, OPTIONS, cancel=cancel):
        events.append(event)
        if isinstance(event, Prefilled) and event.done >= 12:
            cancel.set()
    assert end_of(events).reason == "cancelled"
    assert chat.conversation.ids == tuple(prompt[:12])
    chat.say(LONG, "yes.")
    assert chat.read == [len(prompt) - 12]
    hold(chat)


def test_a_stopped_reply_goes_on_from_its_committed_blocks(chat: Dialogue) -> None:
    asked = [{"role": "user", "content": "hi"}]
    chat.model.reply, chat.model.begin = chat.ids(LONG), len(chat.rendered(asked))
    cancel = threading.Event()
    events: list[Event] = []
    for event in chat.conversation.answer(asked, OPTIONS, cancel=cancel):
        events.append(event)
        if isinstance(event, DenoiseStep) and event.block == 3:
            cancel.set()
    finished = end_of(events)
    assert len(finished.token_ids) == 16
    text = chat.engine.tokenizer.decode(finished.token_ids)
    chat.messages = [*asked, {"role": "assistant", "content": text, "ids": list(finished.token_ids)}]
    chat.say("go on", "yes.")
    prompt = chat.conversation.prompt_ids(chat.messages[:-1], OPTIONS)
    assert find(finished.token_ids, prompt)
    assert list(chat.conversation.ids[: len(prompt)]) == prompt
    assert chat.read == [len(prompt) - len(chat.rendered(asked)) - 16]
    hold(chat)


@pytest.mark.parametrize("cut", [12, 16, 40])
@pytest.mark.parametrize("thought", ["", THOUGHT])
def test_a_cut_reply_is_continued_as_if_it_had_not_been_cut(tmp_path: Path, thought: str, cut: int) -> None:
    """Its ids are those of the whole reply, and at most its last block is read again."""
    chat = Dialogue(tmp_path)
    options = replace(OPTIONS, think=bool(thought), max_tokens=cut)
    asked = [{"role": "user", "content": "hi"}]
    chat.model.reply = chat.ids(thought + LONG + LONG)
    chat.model.begin = len(prompt := chat.rendered(asked, options))
    first = list(chat.conversation.answer(asked, options))
    assert (end_of(first).reason, len(end_of(first).token_ids)) == ("length", cut)
    begun = {"role": "assistant", "content": text_of(first), "ids": list(end_of(first).token_ids)}
    rest = list(chat.conversation.answer([*asked, begun], replace(options, max_tokens=200)))
    assert [*end_of(first).token_ids, *end_of(rest).token_ids] == chat.model.reply
    assert text_of(first) + text_of(rest) == LONG + LONG
    (cached,) = {event.cached_tokens for event in rest if isinstance(event, Prefilled)}
    canvas = chat.model.config.canvas_length
    assert cached == len(prompt) + (cut - 1) // canvas * canvas
    hold(chat)


@pytest.mark.parametrize("more", [{"tool_calls": []}, {"tool_responses": []}, {"reasoning": "hm"}], ids=str)
def test_a_reply_with_more_than_text_is_for_the_template(chat: Dialogue, more: dict[str, Any]) -> None:
    asked = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes", "ids": chat.ids("yes"), **more}]
    without_ids = [asked[0], {"role": "assistant", "content": "yes", **more}]
    assert chat.conversation.prompt_ids(asked, OPTIONS) == chat.engine.prompt_ids(without_ids, OPTIONS)


@pytest.mark.parametrize(
    ("written", "content", "changes"),
    [
        ("See <|tool_call>call:look{", "See <|tool_call>call:look{", {"tool_calls": True}),
        ("it is hot<channel|>Sunny", "Sunny", {"think": True}),
        ("yes", [text_part("yes")], {}),
    ],
    ids=["a call", "a thought that the prompt opened", "parts"],
)
def test_a_cut_reply_has_its_ids_whatever_is_in_it(
    chat: Dialogue, written: str, content: Any, changes: dict[str, Any]
) -> None:
    asked, options = [USER, CALL, RESULT], replace(OPTIONS, **changes)
    begun = {"role": "assistant", "content": content, "ids": chat.ids(written), "tool_calls": None}
    prompt = chat.conversation.prompt_ids(asked, options)
    assert chat.conversation.prompt_ids([*asked, begun], options) == prompt + chat.ids(written)


@pytest.mark.parametrize("ids", [[300, 301, 302], []], ids=str)
@pytest.mark.parametrize("content", ["the model", [{"type": "text", "text": word} for word in ("the", " model")]])
def test_a_reply_of_another_tokenizer_is_continued_from_its_text(chat: Dialogue, content: Any, ids: list[int]) -> None:
    asked = [{"role": "user", "content": "hi"}]
    begun = {"role": "assistant", "content": content, "ids": ids}
    ids = chat.conversation.prompt_ids([*asked, begun], OPTIONS)
    assert ids == chat.rendered(asked) + chat.engine.tokenizer.encode_literal("the model")


def test_a_reply_keeps_its_ids_under_either_of_its_names(chat: Dialogue) -> None:
    letters = [token for letter in "hello" for token in chat.engine.tokenizer.encode_literal(letter)]
    asked = {"role": "user", "content": "hi"}, {"role": "user", "content": "go on"}
    found = []
    for role in ("assistant", "model"):
        reply = {"role": role, "content": "hello", "ids": letters}
        found.append(chat.conversation.prompt_ids([asked[0], reply, asked[1]], OPTIONS))
    assert found[0] == found[1] and find(letters, found[1])


@pytest.mark.parametrize("kept", [False, True])
def test_tool_calls_are_in_the_answer_where_they_are_asked_for(chat: Dialogue, kept: bool) -> None:
    call = "<|tool_call>call:f{}<tool_call|>"
    chat.say("hi", f"yes.{call}", replace(OPTIONS, tool_calls=kept))
    assert chat.messages[-1]["content"] == "yes." + call * kept


def test_a_prompt_may_open_a_thought(chat: Dialogue) -> None:
    prompt = chat.ids("<|turn>model\n<|channel>thought\n")
    chat.model.begin, chat.model.reply = len(prompt), chat.ids("hm<channel|>yes.")
    told = [event for event in chat.engine.generate(prompt, OPTIONS) if isinstance(event, TextCommitted)]
    assert [(event.channel, event.text) for event in told] == [("thought", "hm"), ("answer", "yes.")]


def test_a_reply_may_come_without_ids(chat: Dialogue) -> None:
    messages = [{"role": role, "content": "hello"} for role in ("user", "assistant", "user")]
    assert chat.conversation.prompt_ids(messages, OPTIONS) == chat.rendered(messages)


def test_a_prompt_that_does_not_fit_changes_nothing(chat: Dialogue) -> None:
    chat.say("hi", LONG)
    before = chat.conversation.ids
    small = replace(OPTIONS, context_size=len(before) + 2)
    with pytest.raises(UsageError, match="the context holds"):
        list(chat.conversation.answer([*chat.messages, {"role": "user", "content": LONG}], small))
    assert chat.conversation.ids == before
    chat.say("hi", "yes.")
    hold(chat)


@pytest.mark.parametrize("wrong", [{"t_min": 0.9, "t_max": 0.1}, {"noise": "reference"}], ids=str)
def test_a_refusal_with_a_larger_context_changes_nothing(
    chat: Dialogue, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.say("hi", LONG, replace(OPTIONS, context_size=256))
    before = chat.conversation.ids
    monkeypatch.setattr(chat.conversation.engine, "_dtype", torch.bfloat16)  # refuses the reference's noise
    with pytest.raises(UsageError):
        messages = [{"role": "user", "content": "quite another question"}]
        list(chat.conversation.answer(messages, replace(OPTIONS, context_size=512, **wrong)))
    assert chat.conversation.ids == before
    hold(chat)


def test_a_larger_context_is_read_again_into_a_larger_cache(chat: Dialogue) -> None:
    chat.say("hi", LONG, replace(OPTIONS, context_size=256))
    chat.say("hi", LONG, replace(OPTIONS, context_size=512))
    assert chat.read[1] == len(chat.rendered(chat.messages[:-1]))
    hold(chat)


def test_it_answers_as_an_engine_without_a_past(tmp_path: Path) -> None:
    """With the model's own weights: the same committed blocks as after a prefill of the same ids.

    Self-conditioning is kept small, because with random weights it amplifies rounding errors at each step; with this
    seed the closest decision has a margin of 10⁻² in entropy, and the two ways of reading a prompt are 10⁻⁵ apart.
    """
    chat = Dialogue(tmp_path)
    chat.model.self_conditioning.down_proj.weight.data *= 0.1
    options = replace(OPTIONS, max_tokens=24, seed=5)
    for number in range(4):
        if number == 3:
            chat.messages = chat.messages[:-2]
        events = chat.say(f"the user {number}", None, options)
        prompt = chat.conversation.prompt_ids(chat.messages[:-1], options)
        fresh = list(chat.engine.generate(prompt, options))
        assert [event.token_ids for event in events if isinstance(event, BlockCommitted)] == [
            event.token_ids for event in fresh if isinstance(event, BlockCommitted)
        ]


def test_a_type_checker_knows_that_an_answer_can_be_closed() -> None:
    assert get_type_hints(Conversation.answer)["return"] == get_type_hints(Engine.generate)["return"]


def test_two_conversations_of_one_engine_know_nothing_of_each_other(chat: Dialogue) -> None:
    other = Conversation(chat.engine)
    chat.say("hi", "yes.")
    chat.model.begin = len(chat.rendered([{"role": "user", "content": "no"}]))
    list(other.answer([{"role": "user", "content": "no"}], OPTIONS))
    chat.say("hi", "yes.")
    assert other.ids == tuple(chat.rendered([{"role": "user", "content": "no"}]))
    hold(chat)


def test_what_comes_first(chat: Dialogue) -> None:
    chat.say("hi", "yes.")
    events = chat.say("hi", "yes.")
    started, *rest = events
    prompt = chat.rendered(chat.messages[:-1])
    assert isinstance(started, RunStarted)
    assert started.prompt_tokens == len(prompt)
    prefills = [event for event in rest if isinstance(event, Prefilled)]
    assert (prefills[0].done, prefills[0].seconds) == (len(prompt) - chat.read[-1], 0.0)
    assert [event.done for event in prefills] == sorted({event.done for event in prefills})
    assert prefills[-1].done == prefills[-1].total == len(prompt)


def test_tokens_of_a_text_are_counted_as_a_message_would_have_them(chat: Dialogue) -> None:
    assert chat.conversation.count("the user") == len(chat.ids("the user"))
    assert chat.conversation.count("<turn|>") > 1


def test_nothing_is_not_a_conversation(chat: Dialogue) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        list(chat.conversation.answer([]))
    with pytest.raises(UsageError, match="this one contains a `float`"):
        list(chat.conversation.answer([1.5]))  # type: ignore[list-item]


words = st.sampled_from(["hi", LONG, "the user <turn|> thought", "é 🙂", "two\n\nlines", "x"])
replies = st.sampled_from(
    [
        "yes.",
        LONG,
        THOUGHT + "no.",
        THOUGHT + LONG,
        " trimmed \n",
        "é 🙂 é",
        "<|channel>thought\nand no end",
        "",
        "a<pad>b",
    ]
)
actions = st.one_of(
    st.tuples(st.just("say"), words, replies),
    st.tuples(st.just("say"), words, replies),
    st.tuples(st.just("letters"), words, st.just("the model thought")),
    st.tuples(st.just("undo"), st.integers(1, 3), st.none()),
    st.tuples(st.just("retry"), st.none(), replies),
    st.tuples(st.just("edit"), words, replies),
    st.tuples(st.just("stop"), words, st.integers(1, 12)),
    st.tuples(st.just("think"), st.none(), st.none()),
    st.tuples(st.just("system"), st.sampled_from([None, "be terse"]), st.none()),
)


@pytest.mark.parametrize("generation", GENERATIONS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(actions, min_size=2, max_size=9))
def test_any_history_is_its_ids(tmp_path: Path, generation: str, history: list[tuple[str, Any, Any]]) -> None:
    """Every turn exceeds the ring: it holds five positions, and a turn has dozens."""
    chat, options = Dialogue(tmp_path, generation), OPTIONS
    for action, what, reply in history:
        match action:
            case "undo":
                chat.messages = chat.messages[: -2 * what]
                continue
            case "think":
                options = replace(options, think=not options.think)
                continue
            case "system":
                options = replace(options, system=what)
                continue
            case "stop":
                stop(chat, what, reply, options)
            case "retry" | "edit" if chat.messages:
                asked = chat.messages[-2]["content"] if what is None else what
                chat.messages = chat.messages[:-2]
                chat.say(asked, reply, options)
            case "letters":
                chat.say(what, [id for letter in reply for id in chat.ids(letter)], options)
            case _:
                chat.say(what or "hi", reply, options)
        check(chat, options)
    if chat.conversation.ids:
        hold(chat)


def check(chat: Dialogue, options: GenerateOptions) -> None:
    asked = chat.messages[:-1]
    prompt = chat.conversation.prompt_ids(asked, options)
    decode = chat.engine.tokenizer.decode
    assert decode(prompt, special=True) == decode(chat.rendered(asked, options), special=True)
    known = [*prompt, *chat.messages[-1]["ids"]]
    held = chat.conversation.ids
    assert list(held) == known[: len(held)]


def stop(chat: Dialogue, text: str, after: int, options: GenerateOptions) -> None:
    """A turn that is stopped after that many events, and kept as far as it got."""
    asked = [*chat.messages, {"role": "user", "content": text}]
    chat.model.reply = chat.ids(LONG)
    chat.model.begin = len(chat.conversation.prompt_ids(asked, options))
    cancel, events = threading.Event(), list[Event]()
    for event in chat.conversation.answer(asked, options, cancel=cancel):
        events.append(event)
        if len(events) == after:
            cancel.set()
    finished = end_of(events)
    answer = chat.engine.tokenizer.decode(finished.token_ids)
    chat.messages = [*asked, {"role": "assistant", "content": answer, "ids": list(finished.token_ids)}]


def test_a_character_may_cross_blocks_and_a_reply_may_end_within_one(chat: Dialogue) -> None:
    text = "a🙂bé" * 4
    chat.say("one", text)
    assert chat.messages[-1]["content"] == text
    chat.say("two", chat.ids("a🙂")[:-1])
    assert chat.messages[-1]["content"].rstrip("\ufffd") == "a"
    assert chat.messages[-1]["content"] != "a", "the bytes that there are show as U+FFFD"
