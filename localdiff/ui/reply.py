"""The reply of one run, collected while it goes on.

Knows events; prints nothing. A reply that was stopped or cut off by an error is what was committed until then.
"""

from __future__ import annotations

from dataclasses import dataclass

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    FinishReason,
    Prefilled,
    RunFinished,
    RunStarted,
    RunStats,
    TextCommitted,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One reply.

    Attributes:
        thought: what the model thought before it answered.
        answer: the text.
        ids: what the model wrote, without the end token.
        seed: of the noise.
        max_tokens: the most tokens that it could have.
        reason: how it ended.
        where: how far it got, for a reply that was stopped.
        new_tokens: tokens of the prompt that had to be encoded.
        unsettled: numbers of the blocks that reached the step limit before they were stable and confident.
        max_steps: that limit.
        stats: the figures, or None for a reply cut off by an error.
    """

    thought: str
    answer: str
    ids: tuple[int, ...]
    seed: int
    max_tokens: int
    reason: FinishReason
    where: str
    new_tokens: int
    unsettled: tuple[int, ...]
    max_steps: int
    stats: RunStats | None

    @property
    def is_kept(self) -> bool:
        """Whether there is an answer that can become part of the conversation."""
        return bool(self.answer.strip())

    @property
    def is_empty(self) -> bool:
        """Whether the model ended its turn without an answer: a canvas that condensed to nothing."""
        return self.reason == "end_of_turn" and not self.is_kept


class Collector:
    """Observer that collects the reply so far."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"answer": [], "thought": []}
        self._ids: list[int] = []
        self._unsettled: list[int] = []
        self._started: RunStarted | None = None
        self._finished: RunFinished | None = None
        self._cached_tokens = 0
        self._where = "while reading the prompt"
        self._max_steps = 0

    @property
    def reply(self) -> Reply | None:
        """The reply so far, or None before the run has begun."""
        if self._started is None:
            return None
        finished = self._finished
        return Reply(
            thought="".join(self._texts["thought"]),
            answer="".join(self._texts["answer"]),
            ids=tuple(self._ids) if finished is None else finished.token_ids,
            seed=self._started.seed,
            max_tokens=self._started.max_tokens,
            reason="cancelled" if finished is None else finished.reason,
            where=self._where,
            new_tokens=self._started.prompt_tokens - self._cached_tokens,
            unsettled=tuple(self._unsettled),
            max_steps=self._max_steps,
            stats=None if finished is None else finished.stats,
        )

    def on_event(self, event: Event) -> None:
        """Take note."""
        match event:
            case RunStarted():
                self._started = event
            case Prefilled():
                self._cached_tokens = event.cached_tokens
            case BlockStarted():
                self._where = f"in block {event.block}"
            case DenoiseStep():
                self._where = f"in block {event.block} at step {event.step}"
                self._max_steps = event.max_steps
            case BlockCommitted():
                ends = self._started.end_ids if self._started else ()
                self._ids += [token for token in event.token_ids if token not in ends]
                if event.reason == "step_limit":
                    self._unsettled.append(event.block)
            case TextCommitted():
                self._texts[event.channel].append(event.text)
            case RunFinished():
                self._finished = event
