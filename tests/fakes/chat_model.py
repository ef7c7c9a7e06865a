"""A scripted model for chats: real events, no model, no torch, and a record of what it was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from localdiff.diffusion.settings import SamplerSettings
from localdiff.events import Event, FinishReason, Prefilled, RunStarted
from localdiff.options import CONTEXT_SIZE, GenerateOptions
from tests.fakes.engine import IDENTITY, Block, FakePieces, ScriptedEngine, finished

TOKENS_A_MESSAGE = 6


@dataclass(frozen=True, kw_only=True)
class Said:
    """One reply of the script."""

    blocks: tuple[Block, ...] = (Block(text="Hello."),)
    reason: FinishReason = "end_of_turn"
    error: BaseException | None = None


def said(text: str, **block: Any) -> Said:
    """A reply of one block."""
    return Said(blocks=(Block(text=text, **block),))


@dataclass(kw_only=True)
class ScriptedChatModel:
    """Answers with one reply after the other, then with the last one again and again.

    Attributes:
        replies: the script.
        pause: real seconds that a step takes.
        prompt_pause: real seconds that a chunk of the prompt takes.
        tokens_a_message: length of every message.
        max_positions: longest context that the model takes, if there is a limit.
        calls: messages and options of every run.
    """

    replies: Sequence[Said] = (Said(),)
    pause: float = 0.0
    prompt_pause: float = 0.0
    tokens_a_message: int = TOKENS_A_MESSAGE
    max_positions: int | None = None
    calls: list[tuple[list[dict[str, Any]], GenerateOptions]] = field(default_factory=list)
    engine: Any = field(init=False)

    def __post_init__(self) -> None:
        self.engine = SimpleNamespace(
            identity=IDENTITY,
            tokenizer=FakePieces(),
            hardware="a scripted machine",
            threads=1,
            settings=SamplerSettings(),
            context_size=self.context_size,
        )

    @property
    def asked(self) -> list[list[str]]:
        """What was said in every run, message by message."""
        return [[message["content"] for message in messages] for messages, _ in self.calls]

    def answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerateOptions,
        *,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        """The events of the next reply; what earlier runs asked counts as cached."""
        said = self.replies[min(len(self.calls), len(self.replies) - 1)]
        held = max((len(before) for before, _ in self.calls), default=0) * self.tokens_a_message
        self.calls.append(([dict(message) for message in messages], options))
        total = len(messages) * self.tokens_a_message
        if said.error is not None and not said.blocks:
            raise said.error
        engine = ScriptedEngine(
            blocks=said.blocks, reason=said.reason, error=said.error, pause=self.pause, prompt_tokens=total
        )
        cancel = cancel or threading.Event()
        for event in engine.generate("", options, cancel=cancel):
            if isinstance(event, Prefilled):
                if event.done < held:
                    continue
                time.sleep(self.prompt_pause)
                event = replace(event, cached_tokens=held)
            yield event
            if isinstance(event, RunStarted) and 0 < held < total:
                yield Prefilled(done=held, total=total, cached_tokens=held, seconds=0.0)
            if isinstance(event, Prefilled) and cancel.is_set():
                yield finished("cancelled", (), (), prompt_tokens=total, prompt_seconds=0.1)
                return

    def count(self, text: str, *, max_tokens: int | None = None) -> int:
        """One token per word."""
        return len(text.split())

    def context_size(self, options: GenerateOptions) -> int:
        """The size that the options ask for, or the model's limit if it is lower."""
        size = CONTEXT_SIZE if options.context_size is None else options.context_size
        return min(size, self.max_positions or size)

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions) -> list[int]:
        """One id per character."""
        return [ord(character) for message in messages for character in message["content"]]


def chat_model_of(script: Mapping[str, Any]) -> ScriptedChatModel:
    """A model from JSON: fields of `ScriptedChatModel`, with `replies` as lists of blocks, which are objects."""
    fields = dict(script)
    replies = [Said(blocks=tuple(Block(**block) for block in blocks)) for blocks in fields.pop("replies")]
    return ScriptedChatModel(replies=replies, **fields)
