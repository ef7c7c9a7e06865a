"""A model with real weights and a real cache but scripted answers, with a released chat template."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from localdiff.conversation import Conversation
from localdiff.engine import Engine
from localdiff.events import Event, Prefilled, RunFinished, text_of
from localdiff.identity import ModelIdentity
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import GenerateOptions
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.chats import write_chat_checkpoint
from tests.models import tiny

VOCAB_SIZE = 448
OPTIONS = GenerateOptions(max_tokens=200, context_size=1024, seed=7)


class Speaker(DiffusionGemma):
    """Denoises every canvas to the next part of `reply`; everything it reads goes through its weights as usual.

    Attributes:
        reply: ids to write, then the end of the turn; None leaves the model to its weights.
        begin: cached positions before the reply.
        passes: rows of each pass that wrote into a cache.
    """

    reply: Sequence[int] | None = None
    begin = 0
    end = 0

    def encode(self, ids: torch.Tensor, cache: KVCache) -> None:
        self.passes.append(len(ids))
        super().encode(ids, cache)

    def denoise(
        self,
        canvas_ids: torch.Tensor,
        cache: KVCache,
        soft: torch.Tensor | None = None,
        commit_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if self.reply is None:
            return super().denoise(canvas_ids, cache, soft, commit_ids)
        assert commit_ids is None, "what this engine commits has a pass of its own"
        place, length = cache.length - self.begin, len(canvas_ids)
        written = [*self.reply, self.end, *[tiny.PAD] * length][place : place + length]
        return torch.nn.functional.one_hot(torch.tensor(written), self.config.vocab_size).float() * 100


@functools.cache
def template_of(generation: str) -> ChatTemplate:
    """A released template, cached because it takes a tenth of a second to compile."""
    with tempfile.TemporaryDirectory() as directory:
        return ChatTemplate(write_chat_checkpoint(Path(directory), generation))


class Dialogue:
    """A conversation and its messages, as a chat would keep them.

    Attributes:
        conversation: the conversation under test.
        messages: the messages so far.
        read: how many ids of each prompt had to be read, not cached.
    """

    def __init__(self, directory: Path, generation: str = "v3", *, sliding_window: int = 6, chunk: int = 16) -> None:
        write_chat_checkpoint(directory, generation)
        tokenizer = Tokenizer(directory)
        self.model = Speaker(tiny.config(vocab_size=VOCAB_SIZE, sliding_window=sliding_window))
        self.model.load_state_dict(tiny.model(vocab_size=VOCAB_SIZE).state_dict())
        self.model.requires_grad_(False)
        self.model.passes = []
        self.model.end = tokenizer.control["<turn|>"]
        self.engine = Engine(
            self.model,
            tokenizer,
            template_of(generation),
            tiny.GENERATION | {"eos_token_id": [tiny.EOS, self.model.end]},
            ModelIdentity(model="speaker", recipe="bf16", revision=None, device="cpu", dtype="fp32"),
        )
        self.engine.prefill_chunk = chunk
        self.conversation = Conversation(self.engine)
        self.messages: list[dict[str, Any]] = []
        self.read: list[int] = []

    def ids(self, text: str) -> list[int]:
        """Ids of trusted text: markers in it are markers."""
        return self.engine.tokenizer.encode(text)

    def say(self, text: str, reply: str | Sequence[int] | None, options: GenerateOptions = OPTIONS) -> list[Event]:
        """One turn: a user's text, and the reply that the model will write."""
        asked = [*self.messages, {"role": "user", "content": text}]
        prompt = self.conversation.prompt_ids(asked, options)
        self.model.reply = self.ids(reply) if isinstance(reply, str) else reply
        self.model.begin = len(prompt)
        events = list(self.conversation.answer(asked, options))
        finished = events[-1]
        assert isinstance(finished, RunFinished)
        (cached,) = {event.cached_tokens for event in events if isinstance(event, Prefilled)}
        self.read.append(len(prompt) - cached)
        self.messages = [*asked, {"role": "assistant", "content": text_of(events), "ids": list(finished.token_ids)}]
        return events

    def rendered(self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions = OPTIONS) -> list[int]:
        """What the template alone gives for these messages."""
        plain = [{"role": message["role"], "content": message["content"]} for message in messages]
        if options.system is not None:
            plain.insert(0, {"role": "system", "content": options.system})
        return self.engine.template.encode(self.engine.tokenizer, plain, think=options.think)
