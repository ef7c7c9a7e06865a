"""Streaming detokenization: ids to text while the reply is still growing, across the borders of blocks.

Knows what in Gemma's vocabulary depends on neighbours; knows nothing about blocks, steps or terminals.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.events import Channel
from localdiff.text.channels import ChannelSplitter
from localdiff.text.tokenizer import Tokenizer

_LOCAL = ("Replace", "ByteFallback", "Fuse")


class StreamDecoder:
    """Decodes ids to text as they come. What was returned never changes, and never ends within a character.

    All texts from `push` and the one from `finish`, concatenated, equal the decoded whole exactly, control tokens
    included.

    Byte tokens such as `<0xE2>` at the end are held back: their character may go on, and a run of byte tokens is
    decoded as a whole, so that one wrong byte spoils the run.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_local = is_local([step["type"] for step in tokenizer.decoder_steps])
        self._pending: list[int] = []

    def push(self, ids: Sequence[int]) -> str:
        """Takes more ids and returns the text that is now final, often nothing."""
        # An id without a token must not end a run of bytes here, since it does not in the decoded whole.
        self._pending += filter(self._tokenizer.is_known, ids)
        settled = len(self._pending) if self._is_local else 0
        while settled and self._tokenizer.is_byte(self._pending[settled - 1]):
            settled -= 1
        final, self._pending = self._pending[:settled], self._pending[settled:]
        return self._tokenizer.decode(final, special=True)

    def finish(self) -> str:
        """Returns the rest, when no more ids come; a partial character becomes U+FFFD."""
        return self._tokenizer.decode(self._pending, special=True)


def is_local(steps: Sequence[str]) -> bool:
    """Whether, bytes aside, an id's text depends on no other id, as with Gemma's `Replace, ByteFallback, Fuse`.

    With any other decoder, such as one that strips the first blank, all text is held back until the end.
    """
    return bool(steps) and {*steps[:-1]} <= {*_LOCAL} - {"Fuse"} and steps[-1] in _LOCAL


class ReplyDecoder:
    """Decodes the ids of a reply to the text of its thought and of its answer, without control tokens.

    Every run of ids that `ChannelSplitter` assigns to one channel is decoded by itself: its texts, concatenated, are
    the decoded run, and all of them come before any text of the next one.

    Args:
        tool_calls: keep tool calls in the answer, whole and with their markers as text; otherwise they are
            dropped.
        prompt: ids of the prompt, for replies that begin inside a thought; see `ChannelSplitter`.
    """

    def __init__(self, tokenizer: Tokenizer, *, tool_calls: bool = False, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._splitter = ChannelSplitter(tokenizer, tool_calls=tool_calls, prompt=prompt)
        self._channel: Channel = "answer"
        # The splitter has removed every control token except those of a tool call that is kept.
        self._decoder = StreamDecoder(tokenizer)

    def push(self, ids: Sequence[int]) -> list[tuple[Channel, str]]:
        """Takes more ids and returns, in order, the text that is now final; no text is empty."""
        texts: list[tuple[Channel, str]] = []
        for channel, run in self._splitter.push(ids):
            if channel != self._channel:
                texts += self.finish()
                self._channel, self._decoder = channel, StreamDecoder(self._tokenizer)
            texts.append((channel, self._decoder.push(run)))
        return [(channel, text) for channel, text in texts if text]

    def finish(self) -> list[tuple[Channel, str]]:
        """Returns the rest, when no more ids come."""
        text = self._decoder.finish()
        return [(self._channel, text)] if text else []
