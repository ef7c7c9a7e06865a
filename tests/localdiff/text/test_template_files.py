"""`ChatTemplate`: where a template is found, what it may ask for, and templates and messages that cannot be used."""

from __future__ import annotations

import json
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from localdiff.errors import UsageError, WeightsError
from localdiff.text.template import SPARE_CHARACTERS, ChatTemplate
from tests.checkpoints.chats import USER


def write(directory: Path, source: str) -> Path:
    (directory / "chat_template.jinja").write_text(source, "utf-8")
    return directory


def render(directory: Path, source: str, *messages: dict[str, Any], **settings: Any) -> str:
    return ChatTemplate(write(directory, source)).render(messages or [USER], **settings)


# Where a template is found, and what it may ask for

BASIC = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"


def test_the_file_goes_before_the_key(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "from the key"}))
    assert ChatTemplate(tmp_path).render([USER]) == "from the key"
    assert render(tmp_path, BASIC) == "<bos>user:Hi;"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "<bos><eos>"),
        ({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}, "<s></s>"),
        ({"bos_token": None, "eos_token": 3, "cls_token": None}, "<eos>"),
    ],
)
def test_special_tokens_come_from_the_config(tmp_path: Path, config: dict[str, Any], expected: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert render(tmp_path, "{{ bos_token }}{{ eos_token }}") == expected


@pytest.mark.parametrize("key", ["extra_special_tokens", "model_specific_special_tokens"])
def test_tokens_of_the_model_alone_are_the_variables_that_transformers_makes_of_them(tmp_path: Path, key: str) -> None:
    source = "{{ bos_token }}{{ image_token }}{{ think_token }}"
    config = {"image_token": "<|image|>", key: {"think_token": "<|think|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    reference = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<bos>", **config)
    expected = reference.apply_chat_template([USER], chat_template=source, tokenize=False)
    assert render(tmp_path, source) == expected == "<bos><|image|><|think|>"


def test_tokens_of_the_model_alone_may_be_a_list_without_names(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_special_tokens": ["<|think|>"]}))
    assert render(tmp_path, BASIC) == "<bos>user:Hi;"


def test_reasoning_goes_by_both_names_as_in_transformers(tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ m.reasoning_content }};{% endfor %}"
    turns = [USER, {**USER, "reasoning": "a"}, {**USER, "reasoning": "a", "reasoning_content": "b"}]
    expected = render_jinja_template([turns], chat_template=source)[0][0]
    assert render(tmp_path, source, *turns) == expected == ";a;b;"


def test_line_ends_of_windows_make_no_difference(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"a\r\n{% if true %}\r\nb\r\n{% endif %}\r\nc")
    assert ChatTemplate(tmp_path).render([USER]) == "a\nb\nc"


def test_the_date_comes_from_the_clock_that_was_given(tmp_path: Path) -> None:
    write(tmp_path, "{{ strftime_now('%d %b %Y') }}")
    template = ChatTemplate(tmp_path, now=lambda: datetime(2026, 7, 9))
    assert template.render([USER]) == "09 Jul 2026"


def test_generation_tags_render_what_they_hold(tmp_path: Path) -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert render(tmp_path, source) == "Hi"


# What cannot be used


def test_a_directory_without_a_template_is_a_weights_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="has no chat template") as failure:
        ChatTemplate(tmp_path)
    assert str(tmp_path) in failure.value.message and failure.value.hint
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": [{"name": "rag", "template": "x"}]}))
    with pytest.raises(WeightsError, match="has no chat template"):
        ChatTemplate(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "[" * 100_000])
def test_a_damaged_config_is_a_weights_error(tmp_path: Path, content: str) -> None:
    write(tmp_path, BASIC)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(WeightsError, match="tokenizer_config.json"):
        ChatTemplate(tmp_path)


def test_a_file_that_is_no_template_is_a_weights_error(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe{}")
    with pytest.raises(WeightsError, match="chat_template.jinja"):
        ChatTemplate(tmp_path)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("a\n{% if %}", "line 2"),
        ("{{ 'x' ", "line 1"),
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ 'x' | nonsense }}", "No filter named 'nonsense'"),
        ("{% unknown %}", "unknown tag 'unknown'"),
        ("(" * 10 + "{{ " + "(" * 5000, "chat_template.jinja"),
    ],
)
def test_a_malformed_template_is_a_weights_error(tmp_path: Path, source: str, reason: str) -> None:
    with pytest.raises(WeightsError) as failure:
        ChatTemplate(write(tmp_path, source))
    assert "chat_template.jinja` cannot be used" in failure.value.message
    assert reason in failure.value.message
    assert "\n" not in failure.value.message and not failure.value.message.endswith(".")


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(99999) %}{{ 'x' * 99 }}{% endfor %}",
        "{{ messages[99].content.text }}",
        "{{ nothing.here }}",
        "{{ 1 // 0 }}",
        "{{ nothing | tojson }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% include 'x' %}",
        "{{ strftime_now() }}",
    ],
)
def test_a_template_that_fails_is_a_weights_error(tmp_path: Path, source: str) -> None:
    with pytest.raises(WeightsError, match="chat_template.jinja` fails on this conversation: .+") as failure:
        render(tmp_path, source)
    assert "\n" not in failure.value.message
    assert failure.value.__cause__ is not None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "reasoning": "hm"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Hi", "tool_calls": [{}]},
    ],
)
def test_a_template_that_fails_is_not_blamed_alone_for_an_unusual_message(tmp_path: Path, message: Any) -> None:
    source = "{% for m in messages %}{{ m.content.split(':')[0] + m.tool_calls[0].function.name }}{% endfor %}"
    with pytest.raises(WeightsError) as plain:
        render(tmp_path, source, USER)
    replace = "replace it with the `chat_template.jinja` of the checkpoint it belongs to"
    assert plain.value.hint == replace
    with pytest.raises(WeightsError) as unusual:
        render(tmp_path, source, USER, message)
    assert unusual.value.hint == (
        f"it may accept only messages that consist of a role and a text as `content`; otherwise {replace}"
    )


def test_a_key_without_a_value_is_absent(tmp_path: Path) -> None:
    source = "{{ messages[0].content }}{% if messages[0].tool_calls is defined %}{{ 1 / 0 }}{% endif %}"
    assert render(tmp_path, source, {**USER, "tool_calls": None}) == "Hi"


def test_a_template_may_refuse_a_conversation(tmp_path: Path) -> None:
    source = "{{ raise_exception('Roles must\\n alternate,\x1b user first.') }}"
    with pytest.raises(UsageError, match="(?m)refuses the conversation: Roles must alternate, user first$") as refused:
        render(tmp_path, source)
    assert refused.value.hint == f"`{tmp_path / 'chat_template.jinja'}` decides which conversations are allowed"
    for role in ("system", "developer"):
        with pytest.raises(UsageError) as refused:
            render(tmp_path, source, {"role": role, "content": "Be terse."}, USER)
        assert str(refused.value.hint).endswith("; it may not allow a system prompt: leave it out")


def test_a_failure_does_not_spoil_the_next_rendering(tmp_path: Path) -> None:
    template = ChatTemplate(write(tmp_path, "{% for i in range(messages[0].n) %}x{% endfor %}"))
    with pytest.raises(WeightsError):
        template.render([{**USER, "n": 10**9}])
    assert template.render([{**USER, "n": 3}]) == "xxx"


class Role(StrEnum):
    USER = "user"

    def method(self) -> str:
        return "called"


class Count(IntEnum):
    ONE = 1

    def method(self) -> str:
        return "called"


class Ratio(float):
    def method(self) -> str:
        return "called"


def test_subclasses_of_plain_types_are_plain(tmp_path: Path) -> None:
    assert render(tmp_path, BASIC, {"role": Role.USER, "content": "Hi"}) == "<bos>user:Hi;"
    assert render(tmp_path, BASIC, {"role": "user", "content": ("a", "b")}) == "<bos>user:['a', 'b'];"
    for value in ([Role.USER], [Count.ONE], [Ratio(1)], {Role.USER: 1}):
        with pytest.raises(WeightsError, match="has no attribute 'method'"):
            render(tmp_path, "{{ (messages[0].n | list)[0].method() }}", {**USER, "n": value})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"at": datetime(2026, 1, 1)}, "`at` holds a `datetime`"),
        ({"content": [b"Hi"]}, "`content` holds a `bytes`"),
        ({"extra": {1: 2}}, "`extra` holds a mapping with an `int` as a key"),
    ],
)
def test_values_that_are_not_plain_are_a_usage_error(tmp_path: Path, fields: Any, reason: str) -> None:
    template = ChatTemplate(write(tmp_path, BASIC))
    with pytest.raises(UsageError) as failure:
        template.render([{**USER, **fields}])
    assert reason in failure.value.message


def test_a_template_may_write_much_around_a_short_message_and_not_without_end(tmp_path: Path) -> None:
    source = "{%- for _ in range(COUNT) -%}{{ 'system ' * 100 }}{%- endfor -%}"
    for count in (1, SPARE_CHARACTERS // 700):
        assert len(render(tmp_path, source.replace("COUNT", str(count)))) == 700 * count
    with pytest.raises(WeightsError, match="it writes more than 1,000,"):
        render(tmp_path, source.replace("COUNT", str(SPARE_CHARACTERS // 700 + 2)))


@pytest.mark.parametrize("source", ["", " \n\n", "{% if messages | length > 9 %}{{ messages }}{% endif %}"])
def test_a_template_that_writes_nothing_is_an_error(tmp_path: Path, source: str) -> None:
    """For example if the file's beginning was cut off: the model would answer, but not what was asked."""
    with pytest.raises(WeightsError, match=r"(?m)chat_template.jinja` writes nothing for this conversation$") as caught:
        render(tmp_path, source)
    assert (caught.value.hint or "").startswith("replace it with the `chat_template.jinja`")
