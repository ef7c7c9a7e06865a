"""The forms in which a prompt can be given, and the ids that a model reads.

Knows the template's messages and ids; knows nothing about the model except how many embeddings it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ..errors import UsageError, WeightsError
from ..options import GenerateOptions
from .template import ChatTemplate
from .tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | Sequence[int]
"""A user message, a conversation as `role` and `content`, or token ids used as they are."""


def prompt_ids(
    prompt: Prompt, options: GenerateOptions, *, template: ChatTemplate, tokenizer: Tokenizer, vocab_size: int
) -> list[int]:
    """Ids of a prompt in any of its forms; text goes through the chat template, ids are taken as they are.

    Raises:
        UsageError: it is empty or of no such form, is ids with options for messages, or has unknown ids.
        WeightsError: the tokenizer gives an id that the model has no embedding for.
    """
    if not isinstance(prompt, Sequence):
        raise UsageError(f"a prompt is text, messages or token ids, not a `{type(prompt).__name__}`")
    ids = [] if isinstance(prompt, str | bytes) else [token for token in prompt if type(token) is int]
    if ids and len(ids) == len(prompt):
        if options.system is not None or options.think:
            raise UsageError("`system` and `think` shape messages, and this prompt is token ids already")
        if (strange := _beyond(ids, vocab_size)) is not None:
            raise UsageError(f"{strange} is no token id of this model", f"its ids are 0 to {vocab_size - 1}")
        return ids
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}] if prompt.strip() else []
    messages = as_messages(prompt)
    if not messages:
        raise UsageError("the prompt is empty", "give some text, or `-f FILE`")
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    ids = template.encode(tokenizer, messages, think=options.think)
    if (strange := _beyond(ids, vocab_size)) is not None:
        raise WeightsError(
            f"the tokenizer gives id {strange}, the model has {vocab_size} embeddings",
            "use the tokenizer.json that was published with the weights",
        )
    return ids


def as_messages(prompt: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The messages of a conversation, of which nothing is known yet.

    Raises:
        UsageError: something else is among them.
    """
    for message in prompt:
        if not isinstance(message, Mapping):
            raise UsageError(
                f"a prompt is text, messages or token ids; this one contains a `{type(message).__name__}`",
                'a message is `{"role": "user", "content": "…"}`',
            )
    return list(prompt)


def _beyond(ids: Sequence[int], vocab_size: int) -> int | None:
    """An id that has no embedding."""
    return next((token for token in ids if not 0 <= token < vocab_size), None)
