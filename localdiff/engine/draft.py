"""The draft of one block: a canvas of noise, denoised until the draft is stable and confident.

Knows which events a block has before it is final, and what ends its steps early; knows nothing about how a step is
taken, or about what is kept of the draft.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from localdiff.denoising import BlockSettings, Denoiser, Step
from localdiff.engine.prefill import last_prefilled
from localdiff.engine.run import Run
from localdiff.events import BlockReason, BlockStarted, DenoiseStep, Prefilled


@dataclass(slots=True)
class Draft:
    """The last draft of a block, the steps and seconds that it took, and why it is the last.

    Attributes:
        ids: one per position of the canvas.
    """

    ids: tuple[int, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    reason: BlockReason = "step_limit"


def draft_block(
    run: Run,
    denoiser: Denoiser,
    number: int,
    commit_ids: Sequence[int],
    cancel: threading.Event,
) -> Generator[BlockStarted | Prefilled | DenoiseStep, None, Draft]:
    """Denoises a block to its last draft.

    Args:
        number: the block's, from 1.
        commit_ids: the previous block, or for the first block the end of the prompt, if these are not in the cache yet:
            the first step writes them there.
        cancel: checked after each step but the last, which ends the block anyway.

    Raises:
        WeightsError: the capped logits are NaN or infinite.
    """
    # 3. A canvas of noise.
    run.noise.at(number, 0)
    canvas = run.noise.canvas(run.started.canvas_length, run.started.vocab_size)
    started = BlockStarted(
        block=number,
        max_blocks=-(-run.started.max_tokens // run.started.canvas_length),
        position=len(run.prompt) + len(run.token_ids),
        canvas_ids=tuple(canvas.tolist()),
    )
    ends_prompt = bool(commit_ids) and number == 1
    if not ends_prompt:
        yield started
    # 4. Denoise steps, until the draft is stable and confident.
    block = BlockSettings(
        number=number,
        started=run.stats.start_clock(),
        sampler=run.settings,
        stop_rule=run.stop_rule,
        pad_id=run.started.pad_id,
        record_top_k=run.record_top_k,
    )
    draft, began = Draft(), time.perf_counter()
    steps = _steps(run, denoiser, canvas, block, commit_ids)
    for step in steps:
        if ends_prompt and step.event.step == 1:
            yield last_prefilled(run)
            yield started
        draft.ids, draft.steps = step.event.argmax_ids, step.event.step
        yield step.event
        if step.converged:
            draft.reason = "converged"
        elif cancel.is_set() and draft.steps < run.settings.max_steps:
            draft.reason = "cancelled"
            steps.close()  # before any further event: a denoiser serves one block at a time
    draft.seconds = time.perf_counter() - began
    return draft


def _steps(
    run: Run, denoiser: Denoiser, canvas: Tensor, block: BlockSettings, commit_ids: Sequence[int]
) -> Generator[Step]:
    """The steps of a block; the prefix cache holds `commit_ids` once the first step, which writes them, is over."""
    steps = denoiser.denoise_block(run.prefix_cache.kv_cache, canvas, run.noise, block, commit_ids)
    if commit_ids:
        with run.prefix_cache.extending(commit_ids):
            first = next(steps)
        yield first
    yield from steps
