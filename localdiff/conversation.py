"""A conversation with one engine, in which each turn encodes only its new tokens.

    messages ─► template ─► ids ─► own ids where the text is the same ─► engine, after what is cached

Knows messages and ids; keeps no messages, only the model's encoding of the last ones. A conversation is defined by
its ids: those that the template gives, and, for replies whose text the template leaves unchanged, the very ids that
the model wrote. Where a reply looks different once it is history (its thoughts are stripped, its text is trimmed, the
empty thought before it is left out), the model reads the template's ids in its place. Undoing or changing turns needs
no call to this class: whatever messages come next, the cache is rewound to where they diverge from it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from localdiff.engine import Engine
from localdiff.engine.arguments import options_of
from localdiff.engine.prefix_cache import common_length
from localdiff.errors import UsageError, kind_of
from localdiff.events import Event
from localdiff.options import GenerateOptions
from localdiff.sizes import whole
from localdiff.text.detok import ReplyDecoder
from localdiff.text.prompt import IDS, as_messages
from localdiff.text.template import REPLY_ROLES
from localdiff.text.tokenizer import Tokenizer

__all__ = ["IDS", "Conversation"]

# A reply that no template changes, to see what becomes of the prompt before it.
_ANY_REPLY = {"role": "assistant", "content": "."}


class Conversation:
    """What one engine has encoded of the messages so far; the caller keeps the messages.

    Attributes:
        engine: the engine that answers.

    Raises:
        UsageError: `engine` is not an `Engine`.
    """

    def __init__(self, engine: Engine) -> None:
        if not isinstance(engine, Engine):
            raise UsageError(f"a conversation is with an `Engine`, not {kind_of(engine)}", "`Engine.load` makes one")
        self.engine = engine
        self._prefix_cache = engine.new_prefix_cache()

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids that the model's cache holds."""
        return self._prefix_cache.ids

    def answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerateOptions | None = None,
        *,
        cancel: threading.Event | None = None,
    ) -> Generator[Event, None, None]:
        """Answers the last message, as `Engine.generate` does; only the new part of the prompt is encoded.

        If the last message is the assistant's, and nothing but content and `ids`, the model goes on with it, and the
        events have what it adds.

        `Prefilled.cached_tokens` says how much was cached already. A run must be finished or abandoned before the
        next begins: resuming its iterator afterwards raises `UsageError`.

        Args:
            messages: the whole conversation, with `role` and `content`; the assistant's messages may also have `ids`.
            options: `system` and `think` belong to the whole conversation; a change makes the model encode it all anew.

        Raises:
            UsageError: as `Engine.generate`; what was encoded before is kept.
        """
        options = options_of(options)
        messages, begun = _parted(messages)
        rendered = self._rendered(messages, options)
        ids = self._with_own_ids(rendered, messages)
        # What follows the fork in this prompt is not in the next one, whatever the reply.
        later = self._rendered([*messages, _ANY_REPLY, {"role": "user", "content": "."}], options)
        self._prefix_cache.fork = len(ids) - (len(rendered) - common_length(rendered, later))
        ids += self._begun_ids(begun, ids, options)
        plain = replace(options, system=None, think=False)
        yield from self.engine.generate(ids, plain, cancel=cancel, prefix_cache=self._prefix_cache)

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions) -> list[int]:
        """The ids that the model is given for these messages, with or without a cache."""
        messages, begun = _parted(messages)
        ids = self._with_own_ids(self._rendered(messages, options), messages)
        return ids + self._begun_ids(begun, ids, options)

    def context_size(self, options: GenerateOptions) -> int:
        """As `Engine.context_size`."""
        return self.engine.context_size(options)

    def count(self, text: str, *, max_tokens: int | None = None) -> int:
        """Number of tokens of a text, as part of a message.

        Raises:
            ContextError: the text is many times longer than `max_tokens` tokens.
        """
        return len(self.engine.tokenizer.encode_literal(text, max_tokens=max_tokens))

    def _rendered(self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions) -> list[int]:
        return self.engine.prompt_ids(as_messages(messages), options)

    def _with_own_ids(self, rendered: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> list[int]:
        size = self.engine.model.config.vocab_size
        replies = [_own_ids(message, size) for message in messages if message.get("role") in REPLY_ROLES]
        return with_own_ids(self.engine.tokenizer, rendered, replies)

    def _begun_ids(self, begun: Mapping[str, Any] | None, prompt: Sequence[int], options: GenerateOptions) -> list[int]:
        """The ids of a reply that is continued: its own, thoughts included, unless they are another tokenizer's."""
        if begun is None:
            return []
        tokenizer, content = self.engine.tokenizer, begun["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        own = _own_ids(begun, self.engine.model.config.vocab_size) or ()
        decoder = ReplyDecoder(tokenizer, tool_calls=options.tool_calls, prompt=prompt)
        pieces = (*decoder.push(own), *decoder.finish())
        answer = "".join(piece for channel, piece in pieces if channel == "answer")
        return list(own) if text == answer else tokenizer.encode_literal(text)


def _parted(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
    """The messages to be answered, and the reply that is continued, if the last one is a reply with its ids.

    A reply with tool calls is for the template, which leaves its turn open.
    """
    messages = as_messages(messages)
    last = {key: value for key, value in messages[-1].items() if value is not None} if messages else {}
    if last.keys() == {"role", "content", IDS} and last["role"] in REPLY_ROLES:
        return messages[:-1], last
    return messages, None


def _own_ids(message: Mapping[str, Any], vocab_size: int) -> Sequence[int] | None:
    """The ids that a message carries, or None; another model's ids that this model lacks are dropped."""
    own = message.get(IDS)
    if own is None:
        return None
    ids = [whole(token) for token in own] if isinstance(own, Sequence) else [None]
    if all(token is not None and token >= 0 for token in ids):
        return [token for token in ids if token is not None and token < vocab_size]
    raise UsageError(
        f"`{IDS}` of a message must be a list of token ids",
        "give the `token_ids` of the `RunFinished` event, or leave it out",
    )


def with_own_ids(tokenizer: Tokenizer, rendered: Sequence[int], replies: Sequence[Sequence[int] | None]) -> list[int]:
    """A rendered conversation, with each reply tokenized as the model wrote it wherever the text is the same.

    Args:
        rendered: ids of the rendered template, with the opening of the next reply at the end.
        replies: ids of each reply in it, in order; None where they are not known.
    """
    turn_open, turn_close = tokenizer.control.get("<|turn>"), tokenizer.control.get("<turn|>")
    starts = [place for place, token in enumerate(rendered) if token == turn_open]
    # From the end: messages alternate, and before them there may be any number of turns of other kinds.
    places = range(len(starts) - 3, -1, -2)
    ids = list(rendered)
    for place, own in zip(places, reversed(replies), strict=False):
        opening = rendered[starts[-1] :]
        turn = list(rendered[starts[place] : starts[place + 1]])
        begin = common_length(opening, turn)
        if own is None or turn_close not in turn[begin:]:
            continue
        end = turn.index(turn_close, begin)
        same = [*turn[:begin], *own]
        if tokenizer.decode(same, special=True) == tokenizer.decode(turn[:end], special=True):
            ids[starts[place] + begin : starts[place] + end] = own
    return ids
