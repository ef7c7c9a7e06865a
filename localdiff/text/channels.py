"""Splits committed ids into channels: thought and answer.

Knows the ids of the channel, tool-call and turn markers; knows nothing about text beyond where a piece holds
a newline.

    answer ──<|channel>──► name ──first newline──► thought ──<channel|>──► answer
    answer ──<|tool_call>──► call ──<tool_call|>──► answer           <|turn>, <turn|> and end tokens ──► answer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from localdiff.events import Channel
from localdiff.text.tokenizer import Tokenizer

# A channel's name is one short word. Without a newline within this many tokens it is not a name, but thought.
NAME_LIMIT = 16


class ChannelSplitter:
    """Splits a stream of ids by channel, however it is divided into pushes.

    Everything between `<|channel>` and `<channel|>` is thought, a channel that never closes included. What
    follows `<|channel>` up to the first newline is the channel's name and is dropped; so is every control
    token. A tool call is part of the answer, even inside a thought: kept whole with its markers, or dropped
    whole.

    Args:
        tool_calls: keep tool calls.
        prompt: ids of the prompt. Where its last turn opens a channel and leaves it open (a template does so
            after a tool response), the reply begins as thought.
    """

    def __init__(self, tokenizer: Tokenizer, *, tool_calls: bool = False, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._keep_calls = tool_calls
        ids = tokenizer.control
        self._open, self._close = ids.get("<|channel>"), ids.get("<channel|>")
        self._call_open, self._call_close = ids.get("<|tool_call>"), ids.get("<tool_call|>")
        self._borders = {ids.get(token) for token in ("<|turn>", "<turn|>", "<|tool_response>", "<eos>", "<bos>")}
        self._state: Literal["answer", "name", "thought"] = "answer"
        self._in_call = False
        self._name: list[int] = []
        self._pieces: list[tuple[Channel, list[int]]] = []
        self.push(self._open_part(prompt))

    def push(self, ids: Sequence[int]) -> list[tuple[Channel, list[int]]]:
        """The visible ids, in order, as runs of one channel; a run is never empty and neighbours differ."""
        for id in ids:
            self._take(id)
        pieces, self._pieces = self._pieces, []
        return pieces

    def _take(self, id: int) -> None:
        if id in self._borders:
            self._state, self._in_call = "answer", False
        elif self._in_call:
            self._in_call = id != self._call_close
            self._emit_call(id)
        elif id == self._call_open:
            self._in_call = True
            self._emit_call(id)
        elif id == self._open:
            self._state = "name"
            self._name.clear()
        elif id == self._close:
            self._state = "answer"
        elif self._tokenizer.is_special(id):
            pass
        elif self._state == "name":
            self._take_name(id)
        else:
            self._emit(self._state, id)

    def _take_name(self, id: int) -> None:
        _, newline, rest = self._tokenizer.decode([id]).partition("\n")
        self._name.append(id)
        if newline:
            self._state = "thought"
            if rest.strip():
                self._emit("thought", id)
        elif len(self._name) == NAME_LIMIT:
            self._state = "thought"
            for name_id in self._name:
                self._emit("thought", name_id)

    def _emit_call(self, id: int) -> None:
        if self._keep_calls and id != self._tokenizer.control.get("<pad>"):
            self._emit("answer", id)

    def _emit(self, channel: Channel, id: int) -> None:
        if self._pieces and self._pieces[-1][0] == channel:
            self._pieces[-1][1].append(id)
        else:
            self._pieces.append((channel, [id]))

    def _open_part(self, prompt: Sequence[int]) -> Sequence[int]:
        """The end of `prompt` from an unclosed `<|channel>` on, or nothing."""
        for index in range(len(prompt) - 1, -1, -1):
            if prompt[index] == self._open:
                return prompt[index:]
            if prompt[index] == self._close or prompt[index] in self._borders:
                return ()
        return ()
