"""The decision of a step, from its statistics on the device: accepted positions, next canvas, whether to stop.

Knows the two small tensors that a step exchanges with the host, one copy each way:

    controls   int32 [8]        temperature, entropy bound, confidence (fp32 by their bits), stability, rule, pad id,
                                number of the step, positions in the cache
    outcome    int32 [8 + 6 L]  stable, confident, stop, all numbers, mean entropy (bits), overflow, tail (bits), 0;
                                then [L] each: argmax, its probability (bits), entropy (bits), accepted, sampled, shown

Shape letters: L canvas.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from quant.cuda.launch_arguments import power_of_two

from ..diffusion.reading import LogitStatistics
from ..diffusion.sampler import accept, renoise

CONTROLS = 8
HEADER = 8
ROWS = 6

TEMPERATURE, BOUND, CONFIDENCE, STABILITY, RULE, PAD, STEP, LENGTH = range(CONTROLS)
STABLE, CONFIDENT, STOP, NUMBERS, MEAN, OVERFLOW, TAIL = range(HEADER - 1)

RULES: Final[Mapping[str, int]] = {"both": 3, "stable": 1, "confident": 2, "never": 4}
"""Stop rules as bits: 1 the draft must be stable, 2 it must be confident, 4 never stop."""

_CHUNK = 32


def bits_of(number: float) -> int:
    """The bits of a number as fp32, as a signed integer; one that fp32 cannot hold is infinite, as in torch."""
    try:
        packed = struct.pack("<f", number)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(math.inf, number))
    return int(struct.unpack("<i", packed)[0])


def outcome_size(length: int) -> int:
    """Numbers in the outcome of a canvas of this length."""
    return HEADER + ROWS * length


def decide(
    controls: Tensor,
    stats: LogitStatistics,
    *,
    fresh: Tensor,
    canvas: Tensor,
    draft: Tensor,
    streak: Tensor,
    outcome: Tensor,
) -> None:
    """Decides in Triton, in one launch; `decide_plainly` does the same.

    Of positions with the same entropy the first counts as the surer one.

    Args:
        controls, stats: those of this step.
        fresh: int32 [L], noise for what is not accepted.
        canvas: int64 [L], overwritten by the next one.
        draft: int32 [L], the argmax ids of the last step, overwritten by this one's.
        streak: int32 [1], for how many steps the draft has stayed the same; updated.
        outcome: filled, except for overflow and tail.
    """
    from .decision_kernels import decide_kernel

    length = len(canvas)
    decide_kernel[(1,)](
        controls,
        stats.entropy,
        stats.argmax,
        stats.argmax_prob,
        stats.sampled,
        fresh,
        canvas,
        draft,
        streak,
        outcome,
        length,
        POSITIONS=power_of_two(length),
        CHUNK=_CHUNK,
        num_warps=8,
    )


def decide_plainly(
    controls: Tensor,
    stats: LogitStatistics,
    *,
    fresh: Tensor,
    canvas: Tensor,
    draft: Tensor,
    streak: Tensor,
    outcome: Tensor,
) -> None:
    """What `decide` does, in torch; it does not synchronize with the host either."""
    numbers = controls.view(torch.float32)
    entropy, sampled, ids = stats.entropy, stats.sampled, stats.argmax.int()
    accepted = accept(entropy, numbers[BOUND])
    same = (controls[STEP] > 1) & (ids == draft).all()
    torch.where(same, streak + 1, torch.zeros_like(streak), out=streak)
    mean = entropy.mean()
    stable, confident = streak[0] >= controls[STABILITY], mean < numbers[CONFIDENCE]
    rule = controls[RULE]
    met = (stable | (rule & 1 == 0)) & (confident | (rule & 2 == 0)) & (rule & 4 == 0) & (ids != controls[PAD]).any()
    header = (stable, confident, met, entropy.isfinite().all(), mean.view(torch.int32))
    outcome[: len(header)] = torch.stack([entry.int() for entry in header])
    probability, entropy = stats.argmax_prob.view(torch.int32), entropy.view(torch.int32)
    outcome[HEADER:] = torch.cat((ids, probability, entropy, accepted.int(), sampled.int(), canvas.int()))
    draft.copy_(ids)
    canvas.copy_(renoise(sampled, accepted, fresh))
