"""Single steps on fixed canvases: the distributions of two models given the same input.

The canvases are those that the first model saw in a run of its own. Each model runs over them in order and carries its
own soft embedding from step to step, as in a run, but its samples are discarded: the next canvas is the recorded one.
So no difference comes from a different path, and the first model sees just what it saw in its run.

Shape letters: L canvas, V vocabulary, P positions that are kept, S steps, K of them kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from localdiff.bench.quality.questions import Question
from localdiff.diffusion.reading import LogitStatistics, read_logits
from localdiff.engine import Engine
from localdiff.model.cache import KVCache
from localdiff.options import GenerateOptions

STEPS = 4
"""Steps of a block whose distributions are kept, evenly spaced, the first and the last included."""
MAX_KEPT = 1 << 22
"""Limit of probabilities kept per step (17 MB in fp32): all positions of a small model, 16 of the released one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Canvas:
    """Input of a step: L ids, and the temperature that its logits were divided by."""

    ids: tuple[int, ...]
    temperature: float


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """A model's predictions on a series of canvases.

    Attributes:
        drafts: int64 [S, L], the most probable id of each position in each of S steps.
        log_probs: fp32 [K, P, V] on the CPU, of the K kept steps at P positions.
    """

    drafts: Tensor
    log_probs: Tensor


def kept_steps(count: int) -> list[int]:
    """Which of `count` steps are kept, from 0 on."""
    return sorted({round(step * (count - 1) / (STEPS - 1)) for step in range(STEPS)})


def kept_positions(length: int, vocab_size: int) -> Tensor:
    """Which positions of a canvas are kept: all, or as many evenly spaced ones as `MAX_KEPT` allows."""
    count = min(length, max(1, MAX_KEPT // vocab_size))
    return torch.linspace(0, length - 1, count).round().long()


def predict(engine: Engine, question: Question, options: GenerateOptions, canvases: Sequence[Canvas]) -> Predictions:
    """A model's predictions on given canvases after a prompt, which the options shape as in a run."""
    steps = kept_steps(len(canvases))
    drafts, log_probs = [], []
    for step, (logits, stats) in enumerate(_walk(engine, question, options, canvases)):
        drafts.append(stats.argmax.cpu())
        if step in steps:
            rows = kept_positions(*logits.shape).to(logits.device)
            log_probs.append((logits[rows].float() - stats.log_normalizer[rows, None]).cpu())
    return Predictions(drafts=torch.stack(drafts), log_probs=torch.stack(log_probs))


def divergence(first: Predictions, second: Predictions) -> float:
    """Mean Kullback-Leibler divergence of the second from the first, `Σ p₁ (ln p₁ - ln p₂)`, in nats per position."""
    p = first.log_probs.exp()
    return float((p * (first.log_probs - second.log_probs)).sum(dim=-1).mean(dtype=torch.float64))


def agreement(first: Predictions, second: Predictions) -> float:
    """Share of positions, over all steps, at which both have the same most probable id."""
    return float((first.drafts == second.drafts).double().mean())


@torch.inference_mode()
def _walk(
    engine: Engine, question: Question, options: GenerateOptions, canvases: Sequence[Canvas]
) -> Iterator[tuple[Tensor, LogitStatistics]]:
    """Processed logits [L, V] and their statistics, for each canvas; both are overwritten when the next one is read."""
    model, weight = engine.model, engine.model.norm.weight
    ids = torch.tensor(engine.prompt_ids(question.prompt, options), device=weight.device)
    cache = KVCache(model.config, len(ids), weight.dtype, engine.layer_devices)
    for start in range(0, len(ids), engine.prefill_chunk):
        model.encode(ids[start : start + engine.prefill_chunk], cache)
    soft: Tensor | None = None
    for canvas in canvases:
        logits = model.denoise(torch.tensor(canvas.ids, device=weight.device), cache, soft)
        stats = read_logits(logits, softcap=model.config.softcap, temperature=canvas.temperature, noise=None)
        yield logits, stats
        soft = model.soft_embedding(logits, stats.log_normalizer)
