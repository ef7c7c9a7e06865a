"""The events of a generation: the only vocabulary that the engine shares with its observers.

Knows numbers, ids and text in plain Python values; knows nothing about tensors, terminals or files, so that a run
can be recorded, replayed and drawn without torch. From the first release on, `SCHEMA_VERSION` changes whenever a field
changes its name or its meaning, because traces store these fields; `docs/events.md` is the schema in words.

    RunStarted ─► Prefilled… ─► ┌ BlockStarted ─► DenoiseStep… ─► BlockCommitted ─► TextCommitted… ┐ ─► RunFinished
                                └─────────────────────── once per block ───────────────────────────┘
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal, Protocol, TypeAlias

SCHEMA_VERSION = 1

BlockReason: TypeAlias = Literal["converged", "step_limit", "cancelled"]
FinishReason: TypeAlias = Literal["end_of_turn", "length", "context_full", "cancelled"]
Channel: TypeAlias = Literal["answer", "thought"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted:
    """The prompt is tokenized and nothing has been computed yet.

    Attributes:
        prompt_tokens: length of the prompt in tokens, template included.
        max_tokens: maximum number of tokens this run may commit: the option, or the room left in the context if less.
        canvas_length: positions in a canvas.
        vocab_size: ids that noise is drawn from.
        max_steps: maximum number of denoise steps per block.
        end_ids: token ids that end the answer.
        pad_id: token id that fills a canvas after the end.
        seed: seed of the noise, unless the program that started the run supplied its own noise source.
    """

    prompt_tokens: int
    max_tokens: int
    canvas_length: int
    vocab_size: int
    max_steps: int
    end_ids: tuple[int, ...]
    pad_id: int
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefilled:
    """One chunk of the prompt is in the cache; the last one has `done == total`, unless the run is stopped earlier.

    If an earlier run on the same cache has left tokens of the prompt there, the first event reports them. Where the
    first denoise step also encodes the end of the prompt, the last event comes when that step is over.

    Attributes:
        done: prompt tokens in the cache so far.
        total: prompt tokens in all.
        cached_tokens: how many of them were in the cache before the run; the same in every event of a run.
        seconds: wall time since the prefill began.
    """

    done: int
    total: int
    cached_tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockStarted:
    """A canvas of noise is ready.

    Attributes:
        block: number of the block, from 1.
        max_blocks: maximum number of blocks; a run that ends its turn earlier has fewer.
        position: number of tokens before this canvas.
        canvas_ids: the noise, one id per position.
    """

    block: int
    max_blocks: int
    position: int
    canvas_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DenoiseStep:
    """One pass of the denoiser over the canvas. Every tuple has one entry per canvas position.

    Attributes:
        block: number of the block, from 1.
        step: number of the step within the block, from 1.
        max_steps: maximum number of steps in this block.
        temperature: what the logits were divided by in this step.
        argmax_ids: the draft: most probable id at each position.
        argmax_probs: probability of that id, in 0..1, at this temperature.
        entropies: entropy of the temperature-scaled distribution, in nats.
        accepted: whether the sampler accepted the position in this step; decided anew in every step.
        sampled_ids: the id drawn from the distribution.
        shown_ids: the id that the model was shown in this step.
        mean_entropy: mean of `entropies`, in nats.
        stable: whether the draft has stayed the same for as many steps as the settings require.
        confident: whether the mean entropy is below the confidence threshold.
        seconds: wall time of this step; for static steps, which a GPU begins ahead, since the previous step ended.
        elapsed: wall time since the first denoise step of the run began.
        top_ids: for each position its most probable ids, most probable first; empty unless `record_top_k` is set.
        top_probs: their probabilities, likewise.
    """

    block: int
    step: int
    max_steps: int
    temperature: float
    argmax_ids: tuple[int, ...]
    argmax_probs: tuple[float, ...]
    entropies: tuple[float, ...]
    accepted: tuple[bool, ...]
    sampled_ids: tuple[int, ...]
    shown_ids: tuple[int, ...]
    mean_entropy: float
    stable: bool
    confident: bool
    seconds: float
    elapsed: float
    top_ids: tuple[tuple[int, ...], ...] = ()
    top_probs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockCommitted:
    """A block is final.

    Attributes:
        block: number of the block, from 1.
        token_ids: the draft of the last step, cut after the first end token (which is kept) and at the token limit;
            empty for a draft of nothing but padding.
        steps: denoise steps it took.
        seconds: wall time of those steps.
        reason: `converged`, `step_limit` (final but not stable and confident) or `cancelled` (the draft is dropped and
            `token_ids` is empty).
    """

    block: int
    token_ids: tuple[int, ...]
    steps: int
    seconds: float
    reason: BlockReason


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCommitted:
    """Text that will not change any more; concatenated per channel it is the whole reply.

    Attributes:
        block: block that completed it.
        channel: `answer`, or `thought` for what the model wrote into its thought channel.
        text: whole characters only; never a special token.
    """

    block: int
    channel: Channel
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockStats:
    """How one block went: its steps, seconds and reason."""

    steps: int
    seconds: float
    reason: BlockReason


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStats:
    """Every figure that a footer, a JSON object or a benchmark shows, computed once.

    Attributes:
        prompt_tokens: tokens of the prompt.
        prompt_seconds: wall time of the prefill, until the whole prompt is in the cache.
        tokens: committed, visible tokens (no end token, no padding).
        seconds: wall time from the start of the first denoise step to the end.
        tok_per_s: `tokens / seconds`.
        denoise_passes: forward passes over a canvas: the denoise steps of all blocks.
        commit_passes: forward passes that did nothing but write a committed block into the cache.
        tokens_per_step: `tokens / denoise_passes`.
        peak_bytes: peak of memory held by the device's allocator, or None where the device does not track it.
        blocks: one entry per block.
    """

    prompt_tokens: int
    prompt_seconds: float
    tokens: int
    seconds: float
    tok_per_s: float
    denoise_passes: int
    commit_passes: int
    tokens_per_step: float
    peak_bytes: int | None
    blocks: tuple[BlockStats, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFinished:
    """The run is over; nothing follows.

    Attributes:
        reason: `end_of_turn`, `length` (token limit), `context_full` or `cancelled`.
        token_ids: all committed ids of the reply, in order, without the end token.
        stats: the figures.
    """

    reason: FinishReason
    token_ids: tuple[int, ...]
    stats: RunStats


Event: TypeAlias = RunStarted | Prefilled | BlockStarted | DenoiseStep | BlockCommitted | TextCommitted | RunFinished


class Observer(Protocol):
    """Something that observes a generation and never changes it: a display, a recorder, a summary."""

    def on_event(self, event: Event) -> None:
        """Take the next event; events arrive in the order in which they happened."""


def text_of(events: Iterable[Event], channel: Channel = "answer") -> str:
    """Everything that a run wrote to a channel; its iterator may be given, and is then run to its end."""
    texts = (event for event in events if isinstance(event, TextCommitted))
    return "".join(event.text for event in texts if event.channel == channel)


def name_of(kind: type[Event]) -> str:
    """The name of an event in traces and JSON: `DenoiseStep` is called `denoise_step`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def object_of(event: Event) -> dict[str, object]:
    """An event for `json.dumps(…, default=asdict)`: `event`, then the fields under their own names.

    `asdict` of the whole event would copy its arrays entry by entry, which takes longer than writing them.
    """
    return {"event": name_of(type(event))} | {field.name: getattr(event, field.name) for field in fields(event)}
