"""Messages: what the released templates read is accepted, and what they would misread is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from localdiff.conversation import Conversation
from localdiff.errors import UsageError
from localdiff.options import GenerateOptions
from localdiff.text.template import ChatTemplate
from tests.models import tiny

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "x", "content": "hi"}, "a message has the role 'x'"),
        ({"content": "hi"}, "a message has the role None"),
        ({"role": ["user"], "content": "hi"}, "a message has the role ['user']"),
        ({"role": "user"}, "a message has no `content`"),
        ({"role": "user", "content": None}, "a message has no `content`"),
        ({"role": "assistant", "tool_calls": []}, "a message has no `content`"),
        ({"role": "user", "contents": "hi"}, "a message has an unknown field 'contents'"),
        ({"role": "user", "content": "hi", 5: "hi"}, "a message has an unknown field 5"),
        ({"role": "user", "content": [{"type": "image"}]}, "a part of a message has the type 'image'"),
        ({"role": "user", "content": [{"text": "hi"}]}, "a part of a message has the type None"),
        ({"role": "user", "content": 3}, "the content of a message is an `int` in place of a text or a list of parts"),
        ({"role": "user", "content": {"text": "hi"}}, "the content of a message is a `dict`"),
        ({"role": "user", "content": "hi\ud83d"}, "a message is not text: its character 3 is not UTF-8"),
        (
            {"role": "user", "content": [{"type": "text", "text": "\ud83d"}]},
            "a message is not text: its character 1 is",
        ),
        ({"role": "user", "content": ["hi"]}, "a part of a message is a `str`"),
        ({"role": "user", "content": [{"type": "text"}]}, "the text of a part of a message is a `NoneType`"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "the text of a part of a message is an `int`"),
    ],
)
def test_a_message_that_a_template_would_misread_is_refused(tmp_path: Path, message: Any, words: str) -> None:
    engine = tiny.engine(tmp_path)
    for messages in ([message], [HI, message]):
        with pytest.raises(UsageError, match=re.escape(words)):
            list(engine.generate(messages))
        with pytest.raises(UsageError, match=re.escape(words)):
            list(Conversation(engine).answer(messages))


@pytest.mark.parametrize(("prompt", "kind"), [(5, "an `int`"), (None, "a `NoneType`"), (HI, "a `dict`")])
def test_what_is_no_sequence_is_no_prompt(tmp_path: Path, prompt: Any, kind: str) -> None:
    with pytest.raises(UsageError, match=f"a prompt is text, messages or token ids, not {kind}") as raised:
        list(tiny.engine(tmp_path).generate(prompt))
    assert raised.value.hint == 'messages are a list: `[{"role": "user", "content": "…"}]`'


def test_of_several_prompts_the_error_says_that_they_are_answered_one_by_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this one contains a `str`") as raised:
        list(tiny.engine(tmp_path).generate(["hi", "bye"]))
    assert str(raised.value.hint).endswith("; prompts are answered one by one")


@pytest.mark.parametrize("prompt", [torch.tensor([2, 20]), numpy.array([2, 20])])
def test_for_ids_in_a_tensor_the_error_says_how_to_make_a_list_of_them(tmp_path: Path, prompt: Any) -> None:
    engine = tiny.engine(tmp_path)
    with pytest.raises(UsageError, match=f"not an? `{type(prompt).__name__}`") as raised:
        list(engine.generate(prompt))
    assert raised.value.hint == "`prompt.tolist()` makes a list of its ids"
    assert engine.prompt_ids(prompt.tolist(), GenerateOptions()) == [2, 20]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "developer", "content": "hi"},
        {"role": "model", "content": "hi", "ids": (20,)},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]},
        {"role": "assistant", "content": None, "reasoning": "hm"},
        {"role": "assistant", "tool_responses": [{"name": "f", "response": "hi"}]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "hi"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "refusal": None},
    ],
)
def test_messages_have_every_field_that_the_released_templates_read(tmp_path: Path, message: Any) -> None:
    engine = tiny.engine(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("<bos>{{ messages | length }}")
    engine.template = ChatTemplate(tmp_path)
    assert list(engine.generate([message, HI], GenerateOptions(max_tokens=1)))
