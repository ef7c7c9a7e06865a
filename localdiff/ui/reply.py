"""The reply of one run, collected as the run goes on.

Knows events; prints nothing. A reply that was stopped or cut off by an error consists of what was committed until then.
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


@dataclass(kw_only=True, slots=True)
class Reply:
    """Observer that collects one reply.

    Attributes:
        has_begun: whether the run has begun; the other fields are known only then.
        thought: what the model thought before it answered.
        answer: the text.
        ids: what the model wrote, without the end token.
        begun: those of them that earlier runs wrote, for a reply that is continued; its texts begin with theirs.
        seed: seed of the noise.
        max_tokens: maximum number of its tokens.
        end_ids: token ids that end it.
        reason: how it ended.
        where: how far it got, for a reply that was stopped.
        new_tokens: tokens of the prompt that had to be encoded.
        unsettled: numbers of the blocks that reached the step limit before they were stable and confident, except those
            of which nothing is kept.
        max_steps: the step limit.
        stats: the figures, or None for a reply cut off by an error.
    """

    has_begun: bool = False
    thought: str = ""
    answer: str = ""
    ids: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()
    seed: int = 0
    max_tokens: int = 0
    end_ids: tuple[int, ...] = ()
    reason: FinishReason = "cancelled"
    where: str = "while reading the prompt"
    new_tokens: int = 0
    unsettled: tuple[int, ...] = ()
    max_steps: int = 0
    stats: RunStats | None = None

    @property
    def is_kept(self) -> bool:
        """Whether there is an answer that can become part of the conversation."""
        return bool(self.answer.strip())

    @property
    def is_empty(self) -> bool:
        """Whether the model ended its turn without an answer: a canvas that condensed to nothing."""
        return self.reason == "end_of_turn" and not self.is_kept

    @property
    def fault(self) -> str | None:
        """What a reply without an answer did instead; None if it has an answer, or was stopped."""
        if self.is_kept or self.reason == "cancelled":
            return None
        return "ended before its answer began" if self.thought else "is empty"

    def on_event(self, event: Event) -> None:
        """Collect what the event adds."""
        match event:
            case RunStarted():
                self.has_begun = True
                self.seed, self.max_tokens, self.end_ids = event.seed, event.max_tokens, event.end_ids
                self.new_tokens = event.prompt_tokens
            case Prefilled():
                self.new_tokens = event.total - event.cached_tokens
            case BlockStarted():
                self.where = f"in block {event.block}"
            case DenoiseStep():
                self.where = f"in block {event.block} at step {event.step}"
                self.max_steps = event.max_steps
            case BlockCommitted():
                self.ids += tuple(token for token in event.token_ids if token not in self.end_ids)
                if event.reason == "step_limit" and event.token_ids:
                    self.unsettled += (event.block,)
                if event.reason != "cancelled":
                    self.where = f"after block {event.block}"
            case TextCommitted(channel="thought"):
                self.thought += event.text
            case TextCommitted():
                self.answer += event.text
            case RunFinished():
                self.ids, self.reason, self.stats = (*self.begun, *event.token_ids), event.reason, event.stats
