"""A scripted engine: real events, no model, no torch.

It keeps the promises of `localdiff.events` (order, lengths, counting from 1), so that every observer can be tested with
it. Times are made up and always the same: a step takes a quarter of a second, the prompt half a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from localdiff.diffusion.settings import SamplerSettings
from localdiff.events import (
    BlockCommitted,
    BlockReason,
    BlockStarted,
    BlockStats,
    Channel,
    DenoiseStep,
    Event,
    FinishReason,
    Prefilled,
    RunFinished,
    RunStarted,
    RunStats,
    TextCommitted,
)
from localdiff.identity import ModelIdentity
from localdiff.options import CONTEXT_SIZE, GenerateOptions

CANVAS = 16
MAX_STEPS = 48
STEP_SECONDS = 0.25
PROMPT_SECONDS = 0.5
END_ID = 1
CHUNK = 4
IDENTITY = ModelIdentity(model="scripted", recipe="bf16", revision=None, device="cpu", dtype="fp32")


class FakePieces:
    """Pieces for the ids of `Block.ids`: one character each."""

    def piece(self, id: int, /) -> str:
        """A printable character."""
        return chr(ord("!") + id % 90)

    def is_special(self, id: int, /) -> bool:
        """Padding and the end of turn."""
        return id <= END_ID


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One block of the script: the text it commits, and how it gets there.

    Attributes:
        until: name of a file; the last step takes until that file exists.
    """

    text: str = ""
    thought: str = ""
    steps: int = 3
    reason: BlockReason = "converged"
    until: str | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """One id per character; the real number of tokens does not matter to an observer."""
        return tuple(2 + ord(character) % 90 for character in self.thought + self.text)[:CANVAS]


@dataclass(kw_only=True)
class ScriptedEngine:
    """Yields the script, whatever the prompt.

    Attributes:
        blocks: what is committed.
        reason: how the run ends if nobody stops it.
        prompt_tokens: length of the prompt.
        peak_bytes: the device's peak that it reports.
        pause: real seconds that every step takes.
        error: raised after the blocks instead of the end.
        max_positions: longest context that the model takes, if there is a limit.
        calls: the prompts and options that came in.
    """

    blocks: tuple[Block, ...] = (Block(text="Hello."),)
    reason: FinishReason = "end_of_turn"
    prompt_tokens: int = 6
    peak_bytes: int | None = None
    pause: float = 0.0
    error: BaseException | None = None
    identity: ModelIdentity = IDENTITY
    tokenizer: FakePieces = field(default_factory=FakePieces)
    settings: SamplerSettings = SamplerSettings(schedule_steps=MAX_STEPS)
    max_positions: int | None = None
    hardware: str = "a script"
    threads: int | None = None
    calls: list[tuple[str, GenerateOptions]] = field(default_factory=list)

    def context_size(self, options: GenerateOptions) -> int:
        """The options' limit, or the model's if it is lower."""
        size = CONTEXT_SIZE if options.context_size is None else options.context_size
        return min(size, self.max_positions or size)

    def generate(
        self, prompt: str, options: GenerateOptions, *, cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        """The events of the script, cut short if `cancel` is set."""
        self.calls.append((prompt, options))
        cancel = cancel or threading.Event()
        done: list[BlockStats] = []
        kept: list[int] = []
        yield RunStarted(
            prompt_tokens=self.prompt_tokens,
            max_tokens=options.max_tokens,
            canvas_length=CANVAS,
            vocab_size=100,
            max_steps=MAX_STEPS,
            end_ids=(END_ID,),
            pad_id=0,
            seed=7 if options.seed is None else options.seed,
        )
        for start in range(0, self.prompt_tokens, CHUNK):
            read = min(start + CHUNK, self.prompt_tokens)
            yield Prefilled(
                done=read, total=self.prompt_tokens, cached_tokens=0, seconds=PROMPT_SECONDS * read / self.prompt_tokens
            )
        for number, block in enumerate(self.blocks, 1):
            yield self._block_started(number, kept)
            steps = 0
            for step in self._steps(number, block, done):
                yield step
                steps = step.step
                time.sleep(self.pause)
                while steps == block.steps and block.until is not None and not os.path.exists(block.until):
                    time.sleep(0.01)
                if cancel.is_set():
                    break
            stopped = cancel.is_set()
            ids = () if stopped else block.ids
            reason: BlockReason = "cancelled" if stopped else block.reason
            kept += ids
            done.append(BlockStats(steps=steps, seconds=steps * STEP_SECONDS, reason=reason))
            yield BlockCommitted(block=number, token_ids=ids, steps=steps, seconds=steps * STEP_SECONDS, reason=reason)
            if stopped:
                yield self._finished("cancelled", kept, done)
                return
            yield from self._texts(number, block)
        if self.error is not None:
            raise self.error
        yield self._finished(self.reason, kept, done)

    def _block_started(self, number: int, kept: list[int]) -> BlockStarted:
        return BlockStarted(
            block=number,
            max_blocks=len(self.blocks),
            position=self.prompt_tokens + len(kept),
            canvas_ids=tuple(range(CANVAS)),
        )

    def _steps(self, number: int, block: Block, done: list[BlockStats]) -> Iterator[DenoiseStep]:
        draft = (block.ids + (END_ID,) + (0,) * CANVAS)[:CANVAS]
        before = sum(stats.seconds for stats in done)
        for step in range(1, block.steps + 1):
            settled = CANVAS * step // block.steps
            entropies = tuple(0.01 if place < settled else 2.0 for place in range(CANVAS))
            yield DenoiseStep(
                block=number,
                step=step,
                max_steps=MAX_STEPS,
                temperature=0.8,
                argmax_ids=draft,
                argmax_probs=tuple(0.99 if place < settled else 0.2 for place in range(CANVAS)),
                entropies=entropies,
                accepted=tuple(place < settled for place in range(CANVAS)),
                sampled_ids=draft,
                shown_ids=draft,
                mean_entropy=sum(entropies) / CANVAS,
                stable=step == block.steps,
                confident=step == block.steps,
                seconds=STEP_SECONDS,
                elapsed=before + step * STEP_SECONDS,
            )

    def _texts(self, number: int, block: Block) -> Iterator[TextCommitted]:
        pieces: tuple[tuple[Channel, str], ...] = (("thought", block.thought), ("answer", block.text))
        for channel, text in pieces:
            if text:
                yield TextCommitted(block=number, channel=channel, text=text)

    def _finished(self, reason: FinishReason, kept: list[int], done: list[BlockStats]) -> RunFinished:
        return finished(reason, kept, done, prompt_tokens=self.prompt_tokens, peak_bytes=self.peak_bytes)


def finished(
    reason: FinishReason,
    ids: Sequence[int],
    blocks: Sequence[BlockStats],
    *,
    prompt_tokens: int,
    prompt_seconds: float = PROMPT_SECONDS,
    peak_bytes: int | None = None,
) -> RunFinished:
    """The end of a run of these blocks, with its statistics; rates are 0 if no step was taken."""
    seconds = sum(block.seconds for block in blocks)
    passes = sum(block.steps for block in blocks)
    return RunFinished(
        reason=reason,
        token_ids=tuple(ids),
        stats=RunStats(
            prompt_tokens=prompt_tokens,
            prompt_seconds=prompt_seconds,
            tokens=len(ids),
            seconds=seconds,
            tok_per_s=len(ids) / seconds if seconds else 0.0,
            denoise_passes=passes,
            commit_passes=max(len(blocks) - 1, 0),
            tokens_per_step=len(ids) / passes if passes else 0.0,
            peak_bytes=peak_bytes,
            blocks=tuple(blocks),
        ),
    )
