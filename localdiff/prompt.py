"""The forms in which a prompt can be given, and the ids that a model reads.

Knows the template's messages and ids; knows nothing about the model except how many embeddings it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .errors import UsageError, WeightsError
from .options import GenerateOptions
from .template import ChatTemplate
from .tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | Sequence[int]
"""A user message, a conversation as `role` and `content`, or token ids used as they are."""


def prompt_ids(
    prompt: Prompt, options: GenerateOptions, *, template: ChatTemplate, tokenizer: Tokenizer, vocab_size: int
) -> list[int]:
    """Ids of a prompt in any of its forms; text goes through the chat template, ids are taken as they are.

    Raises:
        UsageError: it is empty, or ids together with options that apply to messages.
        WeightsError: the model has no embedding for one of the ids.
    """
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    ids = [token for token in prompt if isinstance(token, int)]
    messages = [message for message in prompt if not isinstance(message, int)]
    if ids and messages:
        raise UsageError("a prompt is either token ids or messages, this one has both")
    if ids and (options.system is not None or options.think):
        raise UsageError("`system` and `think` shape messages, and this prompt is token ids already")
    if messages:
        if options.system is not None:
            messages.insert(0, {"role": "system", "content": options.system})
        ids = template.encode(tokenizer, messages, think=options.think)
    if not ids:
        raise UsageError("the prompt is empty", "give some text, or `-f FILE`")
    beyond = next((token for token in ids if not 0 <= token < vocab_size), None)
    if beyond is not None:
        raise WeightsError(
            f"the tokenizer gives id {beyond}, the model has {vocab_size} embeddings",
            "use the tokenizer.json that was published with the weights",
        )
    return ids
