"""`ChatTemplate`: the released rendering, character for character, for two generations of the template."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from localdiff.errors import UsageError
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.chats import (
    CALL,
    GENERATIONS,
    HISTORY,
    RESULT,
    SUNNY,
    USER,
    text_part,
)

EMPTY_THOUGHT = {"v1": "<|channel>thought\n<channel|>", "v3": ""}
TERSE = "You are terse.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n<|turn>user\n2+2?<turn|>\n"
CALLED = (
    '<|turn>model\n<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>'
    '<|tool_response>response:get_weather{value:<|"|>sunny, 25C<|"|>}<tool_response|>'
)


# The released rendering, as text


@pytest.mark.parametrize("generation", GENERATIONS)
def test_thinking_off(templates: dict[str, ChatTemplate], generation: str) -> None:
    expected = f"<bos><|turn>system\n{TERSE}<|turn>model\n{EMPTY_THOUGHT[generation]}"
    assert templates[generation].render(HISTORY) == expected


@pytest.mark.parametrize("generation", GENERATIONS)
def test_thinking_on(templates: dict[str, ChatTemplate], generation: str) -> None:
    assert templates[generation].render(HISTORY, think=True) == (
        f"<bos><|turn>system\n<|think|>\n{TERSE}<|turn>model\n"
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_thinking_on_without_a_system_message(templates: dict[str, ChatTemplate], generation: str) -> None:
    assert templates[generation].render([USER], think=True) == (
        "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_reply_at_the_end_is_not_continued(templates: dict[str, ChatTemplate], generation: str) -> None:
    assert templates[generation].render([USER, SUNNY]) == (
        f"<bos><|turn>user\nHi<turn|>\n<|turn>model\nSunny.<turn|>\n<|turn>model\n{EMPTY_THOUGHT[generation]}"
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_tool_response_continues_the_turn_of_its_call(templates: dict[str, ChatTemplate], generation: str) -> None:
    template, head = templates[generation], "<bos><|turn>user\nHi<turn|>\n"
    assert template.render([USER, CALL, RESULT]) == f"{head}{CALLED}"
    assert template.render([USER, CALL, RESULT, SUNNY]).startswith(f"{head}{CALLED}Sunny.<turn|>\n<|turn>model\n")


def test_the_newer_template_opens_a_thought_after_a_tool_response(templates: dict[str, ChatTemplate]) -> None:
    messages = [USER, CALL, RESULT]
    assert templates["v3"].render(messages, think=True).endswith("<tool_response|><|channel>thought\n")
    assert templates["v1"].render(messages, think=True).endswith("<tool_response|>")


# The released rendering, against transformers

CASES: dict[str, list[dict[str, Any]]] = {
    "user": [USER],
    "history": HISTORY,
    "developer": [{"role": "developer", "content": "  Be kind.\n"}, USER],
    "call": [USER, CALL],
    "response": [USER, CALL, RESULT],
    "final": [USER, CALL, RESULT, SUNNY, USER],
    "reasoning": [USER, {**CALL, "reasoning": "hm"}, RESULT],
    "old reasoning": [USER, {**SUNNY, "reasoning_content": "hm"}, USER],
    "mapping": [
        USER,
        {**CALL, "tool_responses": [{"name": "f", "response": {"b": [1, None, True, 0.5], "a": {"k": "v"}}}]},
    ],
    "parallel": [USER, {"role": "assistant", "tool_calls": CALL["tool_calls"] * 2}, RESULT, RESULT],
    "parts": [{"role": "system", "content": [text_part("A "), text_part("B")]}, USER],
    "image": [{"role": "user", "content": [{"type": "image"}, text_part("What?")]}],
    "none": [USER, {**SUNNY, "tool_calls": None, "content": "Sun"}, {**CALL, "content": None}],
    "less than": [{"role": "user", "content": "a < b <div> |> <| é\n\n\n x "}],
}


@pytest.mark.parametrize("think", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_text_and_ids_equal_transformers(
    templates: dict[str, ChatTemplate],
    references: dict[str, PreTrainedTokenizerFast],
    tokenizer: Tokenizer,
    generation: str,
    case: str,
    think: bool,
) -> None:
    messages, reference = CASES[case], references[generation]
    wanted = {"add_generation_prompt": True, "enable_thinking": think}
    text = reference.apply_chat_template(messages, tokenize=False, **wanted)
    assert templates[generation].render(messages, think=think) == text
    ids = reference.apply_chat_template(messages, tokenize=True, return_dict=False, **wanted)
    assert templates[generation].encode(tokenizer, messages, think=think) == ids


@pytest.mark.parametrize("generation", GENERATIONS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_chat_without_control_tokens_encodes_as_it_renders(
    templates: dict[str, ChatTemplate], tokenizer: Tokenizer, generation: str, data: st.DataObject
) -> None:
    words = st.text(st.sampled_from("ab <>|\n(é€"), max_size=12).filter(lambda text: "<|" not in text)
    contents = data.draw(st.lists(words, min_size=1, max_size=5))
    messages = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(contents)]
    template = templates[generation]
    assert template.encode(tokenizer, messages) == tokenizer.encode(template.render(messages))


def test_the_newer_template_refuses_arguments_as_text(templates: dict[str, ChatTemplate]) -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    assert "call:f{" in templates["v1"].render([USER, call])
    with pytest.raises(UsageError, match="must be a JSON object"):
        templates["v3"].render([USER, call])


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_long_prompt_renders(templates: dict[str, ChatTemplate], generation: str) -> None:
    text = "word " * 400_000
    assert text.strip() in templates[generation].render([{"role": "user", "content": text}])
