"""Chats drawn at random, with every field that a template reads: text and ids are those of transformers."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from localdiff.errors import LocaldiffError
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.chats import GENERATIONS, text_part

# Without control tokens: where a user types them they are only characters, so the ids differ on purpose.
words = st.lists(
    st.sampled_from(["a", "the ", " ", "\n", "\n\n\n", "<", "|", ">", '"', "'", "\\", "{", "}", "%", "é", "😀", "▁"]),
    max_size=6,
).map("".join)
words = words.filter(lambda text: "<|" not in text and "|>" not in text)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
contents = words | st.lists(words.map(text_part), max_size=3)
arguments = st.dictionaries(words, values, max_size=3)
calls = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": words, "arguments": arguments})},
        optional={"id": words, "type": st.just("function")},
    ),
    min_size=1,
    max_size=2,
)
thoughts = words.map(lambda text: f"<|channel>thought\n{text}<channel|>")
typed = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "developer"]), "content": contents})
replies = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "model"]), "content": contents | st.tuples(thoughts, words).map("".join)},
    optional={
        "tool_calls": calls | st.none(),
        "reasoning": words,
        "reasoning_content": words,
        "tool_responses": st.lists(st.fixed_dictionaries({"name": words, "response": values}), max_size=2),
    },
)
results = st.fixed_dictionaries({"role": st.just("tool"), "content": contents}, optional={"tool_call_id": words})
chats = st.lists(typed | replies | results, min_size=1, max_size=5)


@pytest.mark.parametrize("generation", GENERATIONS)
@given(chat=chats, think=st.booleans())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_any_chat_has_the_text_and_the_ids_of_transformers(
    templates: dict[str, ChatTemplate],
    references: dict[str, PreTrainedTokenizerFast],
    tokenizer: Tokenizer,
    generation: str,
    chat: list[dict[str, Any]],
    think: bool,
) -> None:
    template, reference = templates[generation], references[generation]
    wanted = {"add_generation_prompt": True, "enable_thinking": think}
    try:
        text = reference.apply_chat_template(chat, tokenize=False, **wanted)
    except (jinja2.TemplateError, TypeError):
        with pytest.raises(LocaldiffError):
            template.render(chat, think=think)
        return
    assert template.render(chat, think=think) == text
    ids = reference.apply_chat_template(chat, tokenize=True, return_dict=False, **wanted)
    assert template.encode(tokenizer, chat, think=think) == ids
