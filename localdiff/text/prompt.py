"""The forms in which a prompt can be given, and the ids that a model reads.

Knows the template's messages and ids; knows nothing about the model except how many embeddings it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from localdiff.errors import UsageError, WeightsError, kind_of
from localdiff.options import GenerateOptions
from localdiff.sizes import whole
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer
from localdiff.utf8 import require_text

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | Sequence[int]
"""A user message, a conversation as `role` and `content`, or token ids used as they are."""

_MESSAGE = 'a message is `{"role": "user", "content": "…"}`'
_MESSAGES = 'messages are a list: `[{"role": "user", "content": "…"}]`'
_PART = 'only text is read: a part is `{"type": "text", "text": "…"}`'
ROLES = ("user", "assistant", "model", "system", "developer", "tool")
IDS = "ids"
"""Field of a reply for the ids that the model wrote, `RunFinished.token_ids`; a `Conversation` reads it."""
FIELDS = (
    "role",
    "content",
    "reasoning",
    "reasoning_content",
    "tool_calls",
    "tool_responses",
    "tool_call_id",
    "name",
    IDS,
)
"""Fields of a message that the released templates read, and our own."""
_INSTEAD = ("tool_calls", "tool_responses", "reasoning", "reasoning_content")
"""Fields of a reply that need no content beside them."""


def prompt_ids(
    prompt: Prompt,
    options: GenerateOptions,
    *,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    vocab_size: int,
    max_tokens: int | None = None,
) -> list[int]:
    """Ids of a prompt in any of its forms; text goes through the chat template, ids are taken as they are.

    Args:
        max_tokens: number of ids that are of any use; the result may still be longer.

    Raises:
        UsageError: it is empty or has none of these forms, is ids with options for messages, or has unknown ids.
        ContextError: its text is so long that it must have more than `max_tokens` ids.
        WeightsError: the tokenizer gives an id that the model has no embedding for.
    """
    if not isinstance(prompt, Sequence):
        is_array = hasattr(prompt, "tolist")  # of torch or numpy
        hint = "`prompt.tolist()` makes a list of its ids" if is_array else _MESSAGES
        raise UsageError(f"a prompt is text, messages or token ids, not {kind_of(prompt)}", hint)
    if isinstance(prompt, bytes | bytearray):
        raise UsageError("the prompt is bytes, not text", "`prompt.decode()` makes text of bytes in UTF-8")
    ids = [] if isinstance(prompt, str) else [token for token in map(whole, prompt) if token is not None]
    if ids and len(ids) == len(prompt):
        if options.system is not None or options.think:
            raise UsageError("`system` and `think` shape messages, and this prompt is token ids already")
        if (strange := _beyond(ids, vocab_size)) is not None:
            raise UsageError(f"{strange} is not a token id of this model", f"its ids are 0 to {vocab_size - 1}")
        return ids
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}] if prompt.strip() else []
    messages = [{key: value for key, value in message.items() if key != IDS} for message in as_messages(prompt)]
    if not messages:
        raise UsageError("the prompt is empty", "give some text")
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    ids = template.encode(tokenizer, messages, think=options.think, max_tokens=max_tokens)
    if (strange := _beyond(ids, vocab_size)) is not None:
        raise WeightsError(
            f"the tokenizer gives id {strange}, the model has {vocab_size} embeddings",
            "use the tokenizer.json that was published with the weights",
        )
    return ids


def as_messages(prompt: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The messages of a conversation, once they are checked; a field whose value is None counts as absent.

    Raises:
        UsageError: `prompt` is something else, has something else among its messages, or has a message that a template
            would read as a different one or ignore.
    """
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes | bytearray):
        raise UsageError(f"messages must be a list, not {kind_of(prompt)}", _MESSAGES)
    for message in prompt:
        if not isinstance(message, Mapping):
            hint = f"{_MESSAGE}; prompts are answered one by one" if isinstance(message, str) else _MESSAGE
            raise UsageError(f"a prompt is text, messages or token ids; this one contains {kind_of(message)}", hint)
        keys = [key for key, value in message.items() if value is not None]
        if unknown := [key for key in keys if key not in FIELDS]:
            raise UsageError(
                f"a message has an unknown field {unknown[0]!r:.60}",
                f"its fields are {', '.join(FIELDS)}",
            )
        if message.get("role") not in ROLES:
            raise UsageError(f"a message has the role {message.get('role')!r:.60}", f"roles are {', '.join(ROLES)}")
        if "content" not in keys and not any(message.get(field) for field in _INSTEAD):
            raise UsageError("a message has no `content`", _MESSAGE)
        _require_text(message.get("content"))
    return list(prompt)


def _require_text(content: Any) -> None:
    """Refuses parts that are not text, or that lack it: a template would turn them into an image token, or nothing."""
    if not isinstance(content, str | list | tuple | None):
        raise UsageError(f"the content of a message is {kind_of(content)} in place of a text or a list of parts")
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        if not isinstance(part, Mapping):
            raise UsageError(f"a part of a message is {kind_of(part)}", _PART)
        if part.get("type") != "text":
            raise UsageError(f"a part of a message has the type {part.get('type')!r:.60}", _PART)
        if not isinstance(text := part.get("text"), str):
            raise UsageError(f"the text of a part of a message is {kind_of(text)}", _PART)
        require_text(text, "a message", "a message is UTF-8 text")


def _beyond(ids: Sequence[int], vocab_size: int) -> int | None:
    """An id that has no embedding."""
    return next((token for token in ids if not 0 <= token < vocab_size), None)
