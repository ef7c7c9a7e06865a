"""What dynamic and static denoise steps share: the settings of a block, the event, the error.

Knows what an event shows; knows nothing about how a step is computed.
Shape letters: L canvas.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from localdiff.diffusion.reading import LogitStatistics, TopIds
from localdiff.diffusion.sampler import temperature_at
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule, Verdict
from localdiff.errors import WeightsError
from localdiff.events import DenoiseStep
from localdiff.kernels.decision_layout import ACCEPTED, ARGMAX, ENTROPY, PROBABILITY, ROWS, SAMPLED, SHOWN
from quant.cuda.switches import PLAIN


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


def event_rows(stats: LogitStatistics, accepted: Tensor, shown: Tensor) -> Tensor:
    """All that an event shows in one tensor, for `step_of`, so that a step needs one copy to the host.

    Args:
        accepted: bool [L]; shown: [L], the ids of the canvas that the step was given.

    Returns:
        int32 [6, L] on the same device, floats as their bits; `decision_layout` has the order.
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


def step_of(
    rows: Tensor,
    step: int,
    block: BlockSettings,
    verdict: Verdict,
    *,
    began: float,
    now: float,
    top: TopIds | None,
) -> Step:
    """Makes a `Step` of a denoise step that is over.

    Args:
        rows: int32 [6, L] on the host, as `event_rows` packs them.
        verdict: of this path's own stop test; a mean entropy that is computed again, on another device, may fall on the
            other side of the threshold.
        began, now: when the step began and when it was over, on the clock of `block.started`.
        top: on any device; None unless `block.record_top_k` asks for it.
    """
    event = DenoiseStep(
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
        mean_entropy=verdict.mean_entropy,
        stable=verdict.stable,
        confident=verdict.confident,
        seconds=now - began,
        elapsed=now - block.started,
        top_ids=() if top is None else tuple(map(tuple, top.ids.tolist())),
        top_probs=() if top is None else tuple(map(tuple, top.probs.tolist())),
    )
    return Step(event=event, converged=verdict.stop)


def not_numbers(step: int, block: int, *, by_kernels: bool = False) -> WeightsError:
    """The error of capped logits that are NaN or infinite; a cap makes infinite ones finite, as in the reference.

    Args:
        by_kernels: whether GPU kernels computed them, which may be at fault, too.
    """
    hint = "the weights are damaged; `localdiff quantize --verify-only` checks those that it wrote"
    if by_kernels:
        hint += f"; if they are sound, a GPU kernel may be at fault: `{PLAIN}=all` runs without kernels"
    return WeightsError(f"the logits of block {block}, step {step} are not finite (NaN or infinity)", hint)
