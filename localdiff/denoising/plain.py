"""The plain denoising loop of one block: from a canvas of noise to a draft that is stable and confident.

Knows the model, its cache and the sampler; knows nothing about text or about what came before the block. Everything
stays on the device except one small packed tensor per step, which is what an event shows.
Shape letters: L canvas, D width, C commit rows, K most probable ids.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from localdiff.diffusion.noise import Noise
from localdiff.diffusion.reading import LogitStatistics, ReadLogits, read_logits
from localdiff.diffusion.sampler import accept, renoise
from localdiff.diffusion.schedule import temperature_at
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule, StopTest
from localdiff.errors import WeightsError
from localdiff.events import DenoiseStep
from localdiff.kernels.decision_layout import ACCEPTED, ARGMAX, ENTROPY, PROBABILITY, ROWS, SAMPLED, SHOWN
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockSettings:
    """What stays the same for every step of a block.

    Attributes:
        number: the block's, from 1.
        started: when the run's first step began, by `time.perf_counter`.
        sampler: settings of the sampler.
        record_top_k: how many of the most probable ids of each position an event reports.
    """

    number: int
    started: float
    sampler: SamplerSettings
    stop_rule: StopRule
    pad_id: int
    record_top_k: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A denoise step as an event, and whether it met the stop rule."""

    event: DenoiseStep
    converged: bool


@torch.inference_mode()
def denoise_plainly(
    model: DiffusionGemma,
    cache: KVCache,
    canvas: Tensor,
    noise: Noise,
    block: BlockSettings,
    commit_ids: Tensor | None = None,
    read: ReadLogits = read_logits,
) -> Iterator[Step]:
    """Denoises `canvas` [L], as `Denoiser.denoise_block` does, on whatever device it is.

    Args:
        commit_ids: [C] the last block or end of the prompt, which the first step also writes into the cache.
        read: reads logits.

    Raises:
        WeightsError: the logits are NaN or infinite.
    """
    settings, device = block.sampler, canvas.device
    test = StopTest(settings, pad_id=block.pad_id, rule=block.stop_rule)
    soft: Tensor | None = None
    for step in range(1, settings.max_steps + 1):
        began = time.perf_counter()
        temperature = temperature_at(step, settings)
        noise.at(block.number, step)
        # a. The denoiser: canvas, cache and the last step's soft embedding in, logits out.
        logits = model.denoise(canvas, cache, soft, commit_ids if step == 1 else None)
        # b. Read them: entropy, draft, samples. The logits are now capped and divided by the temperature.
        stats = read(
            logits,
            softcap=model.config.softcap,
            temperature=temperature,
            noise=None if settings.greedy else noise,
            record_top_k=block.record_top_k,
        )
        # c. Accept the surest, renoise the rest.
        accepted = accept(stats.entropy, settings.entropy_bound)
        fresh = noise.canvas(len(canvas), model.config.vocab_size).to(device)
        shown, canvas = canvas, renoise(stats.sampled, accepted, fresh)
        # d. Stop?
        rows = event_rows(stats, accepted, shown).cpu()
        draft, entropy = rows[ARGMAX], rows[ENTROPY].view(torch.float32)
        if not entropy.isfinite().all():
            raise not_numbers(step, block.number)
        verdict = test.judge(draft, entropy)
        now = time.perf_counter()
        event = step_event(
            rows,
            step,
            block,
            mean_entropy=verdict.mean_entropy,
            stable=verdict.stable,
            confident=verdict.confident,
            seconds=now - began,
            now=now,
            top_ids=nested(stats.top_ids),
            top_probs=nested(stats.top_probs),
        )
        yield Step(event=event, converged=verdict.stop)
        if verdict.stop or step == settings.max_steps:
            return
        # e. Carry this step's prediction into the next, and free the logits before that makes its own.
        soft = model.soft_embedding(logits, stats.log_normalizer)
        del logits


def event_rows(stats: LogitStatistics, accepted: Tensor, shown: Tensor) -> Tensor:
    """All that an event shows, as `step_event` takes it: a step needs one copy to the host.

    Args:
        accepted: bool [L]; shown: [L], the ids of the canvas that the step was given.

    Returns:
        int32 [6, L] on the same device, floats by their bits; `decision_layout` has the order.
    """
    rows = {
        ARGMAX: stats.argmax.int(),
        PROBABILITY: stats.argmax_prob.view(torch.int32),
        ENTROPY: stats.entropy.view(torch.int32),
        ACCEPTED: accepted.int(),
        SAMPLED: stats.sampled.int(),
        SHOWN: shown.int(),
    }
    return torch.stack([rows[place] for place in range(ROWS)])


def step_event(
    rows: Tensor,
    step: int,
    block: BlockSettings,
    *,
    mean_entropy: float,
    stable: bool,
    confident: bool,
    seconds: float,
    now: float,
    top_ids: tuple[tuple[int, ...], ...] = (),
    top_probs: tuple[tuple[float, ...], ...] = (),
) -> DenoiseStep:
    """The event of a step.

    Args:
        rows: int32 [6, L] on the host, as `event_rows` packs them.
        mean_entropy, stable, confident: as the stop test of this path found them, on whatever device it ran; a mean
            that is computed again may be on the other side of the threshold.
        seconds: duration of the step; now: when it was over, on the clock of `block.started`.
        top_ids, top_probs: [L, K], if `block.record_top_k` asks for them.
    """
    return DenoiseStep(
        block=block.number,
        step=step,
        max_steps=block.sampler.max_steps,
        temperature=temperature_at(step, block.sampler),
        argmax_ids=tuple(rows[ARGMAX].tolist()),
        argmax_probs=tuple(rows[PROBABILITY].view(torch.float32).tolist()),
        entropies=tuple(rows[ENTROPY].view(torch.float32).tolist()),
        accepted=tuple(rows[ACCEPTED].bool().tolist()),
        sampled_ids=tuple(rows[SAMPLED].tolist()),
        shown_ids=tuple(rows[SHOWN].tolist()),
        mean_entropy=mean_entropy,
        stable=stable,
        confident=confident,
        seconds=seconds,
        elapsed=now - block.started,
        top_ids=top_ids,
        top_probs=top_probs,
    )


def not_numbers(step: int, block: int) -> WeightsError:
    """The error of logits that are NaN or infinite."""
    return WeightsError(
        f"the logits of block {block}, step {step} are not finite (NaN or infinity)",
        "the weights are damaged; `localdiff quantize --verify-only` checks those that it wrote",
    )


def nested(table: Tensor | None) -> tuple[tuple[Any, ...], ...]:
    """[L, K] as plain values; empty where there are none."""
    return () if table is None else tuple(tuple(row) for row in table.tolist())
