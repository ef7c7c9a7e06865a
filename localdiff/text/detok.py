"""Streaming detokenization: ids to text while the reply is still growing, across the borders of blocks.

Knows how the decoders of `tokenizer.json` depend on their neighbours; knows nothing about blocks, steps or
terminals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from localdiff.events import Channel
from localdiff.text.channels import ChannelSplitter
from localdiff.text.tokenizer import REPLACEMENT, Tokenizer

Reach: TypeAlias = Literal["local", "anchored", "whole"]


class StreamDecoder:
    """Decodes ids to text as they come. What was returned never changes, and never ends within a character.

    All texts from `push` and the one from `finish`, concatenated, equal the decoded whole exactly, control tokens
    included.

    Two things are held back. Bytes at the end: a character of the vocabulary's `<0xE2>` tokens may go on, and
    a run of them is decoded as a whole, so that one wrong byte spoils the run. And U+FFFD at the end, which
    is what a partial character of a byte-level vocabulary decodes to.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._reach = reach(tokenizer.decoder_steps)
        self._pending: list[int] = []
        self._returned = 0  # characters of the text of `_pending` that were returned already

    def push(self, ids: Sequence[int]) -> str:
        """Takes more ids and returns the text that is now final, often nothing."""
        # An id without a token must not end a run of bytes here, since it does not in the decoded whole.
        self._pending += filter(self._tokenizer.is_known, ids)
        if self._reach == "whole":
            return ""
        settled = len(self._pending)
        while settled and self._tokenizer.is_byte(self._pending[settled - 1]):
            settled -= 1
        decoded = self._tokenizer.decode(self._pending[:settled], special=True)
        final = decoded.rstrip(REPLACEMENT)
        text = final[self._returned :]
        self._returned = len(final)
        if self._reach == "local" and len(final) == len(decoded):
            del self._pending[:settled]
            self._returned = 0
        return text

    def finish(self) -> str:
        """Returns the rest, when no more ids come; a partial character becomes U+FFFD."""
        return self._tokenizer.decode(self._pending, special=True)[self._returned :]


class ReplyDecoder:
    """Decodes the ids of a reply to the text of its thought and of its answer, without control tokens.

    All texts of one channel, concatenated, are the decoded ids that `ChannelSplitter` assigns to that channel.

    Args:
        tool_calls: keep tool calls in the answer, whole and with their markers as text; otherwise they are
            dropped.
        prompt: ids of the prompt, for replies that begin inside a thought; see `ChannelSplitter`.
    """

    def __init__(self, tokenizer: Tokenizer, *, tool_calls: bool = False, prompt: Sequence[int] = ()) -> None:
        self._splitter = ChannelSplitter(tokenizer, tool_calls=tool_calls, prompt=prompt)
        # The splitter has removed every control token except those of a tool call that is kept.
        self._decoders: dict[Channel, StreamDecoder] = {
            "thought": StreamDecoder(tokenizer),
            "answer": StreamDecoder(tokenizer),
        }

    def push(self, ids: Sequence[int]) -> list[tuple[Channel, str]]:
        """Takes more ids and returns, in order, the text that is now final; no text is empty."""
        texts = [(channel, self._decoders[channel].push(run)) for channel, run in self._splitter.push(ids)]
        return [(channel, text) for channel, text in texts if text]

    def finish(self) -> list[tuple[Channel, str]]:
        """Returns the rest of each channel, when no more ids come."""
        texts = [(channel, decoder.finish()) for channel, decoder in self._decoders.items()]
        return [(channel, text) for channel, text in texts if text]


def reach(steps: Sequence[Mapping[str, Any]]) -> Reach:
    """How far the text of one id depends on its neighbours, for the decoder steps of a `tokenizer.json`.

    Returns:
        `local`: not at all, except in characters that span several ids.
        `anchored`: the first id or the last one is treated differently, but more ids only ever append text.
        `whole`: anything else; only the complete reply can be decoded.
    """
    result: Reach = "local" if steps else "anchored"  # without a decoder, tokens are joined with spaces
    fused = False
    for step in steps:
        match step["type"]:
            case "Fuse":
                fused = True
            case "ByteFallback" if not fused:
                pass
            case "ByteLevel" if not fused:
                fused = True
            case "Replace" if not fused or len(step["pattern"].get("String", "")) == 1:
                pass
            case "Metaspace" if not fused:
                result = "anchored"
            case "Strip":
                result = "anchored" if fused else result
            case _:
                return "whole"
    return result
