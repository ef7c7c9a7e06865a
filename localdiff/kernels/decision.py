"""The decision of a step, from its statistics on the device: accepted positions, next canvas, whether to stop.

Knows the two small tensors that a step exchanges with the host, one copy each way:

    controls   int32 [8]        temperature, entropy bound, confidence (bits of fp32), stability, rule, pad id,
                                number of the step, positions in the cache
    outcome    int32 [8 + 6 L]  stable, confident, stop, all entropies finite, mean entropy (bits), overflow, tail
                                (bits), 0; then [L] each: argmax, its probability (bits), entropy (bits), accepted,
                                sampled, shown

The constants below are the places in these tensors, in torch and in the kernel.

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
STABLE, CONFIDENT, STOP, FINITE, MEAN_ENTROPY, OVERFLOW, TAIL = range(HEADER - 1)

NEEDS_STABLE, NEEDS_CONFIDENT, NEVER = 1, 2, 4
RULES: Final[Mapping[str, int]] = {
    "both": NEEDS_STABLE | NEEDS_CONFIDENT,
    "stable": NEEDS_STABLE,
    "confident": NEEDS_CONFIDENT,
    "never": NEVER,
}
"""Stop rules as bits."""

_CHUNK = 32


def bits_of(number: float) -> int:
    """The bits of a number in fp32, as a signed integer; a number too large for fp32 becomes infinite, as in torch."""
    try:
        packed = struct.pack("<f", number)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(math.inf, number))
    return int(struct.unpack("<i", packed)[0])


def outcome_size(length: int) -> int:
    """Elements of the outcome of a canvas of this length."""
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

    Of positions with the same entropy, the first is accepted first.

    Args:
        controls, stats: those of this step.
        fresh: int32 [L], random ids for the positions that are not accepted.
        canvas: int64 [L], overwritten by the next one.
        draft: int32 [L], the argmax ids of the last step, overwritten by this step's.
        streak: int32 [1], for how many steps the draft has stayed the same; updated.
        outcome: written, except for overflow and tail.
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
    in_fp32 = controls.view(torch.float32)
    entropy, sampled, ids = stats.entropy, stats.sampled, stats.argmax.int()
    accepted = accept(entropy, in_fp32[BOUND])
    same = (controls[STEP] > 1) & (ids == draft).all()
    torch.where(same, streak + 1, torch.zeros_like(streak), out=streak)
    mean = entropy.mean()
    stable, confident = streak[0] >= controls[STABILITY], mean < in_fp32[CONFIDENCE]
    rule = controls[RULE]
    stop = (
        (stable | (rule & NEEDS_STABLE == 0))
        & (confident | (rule & NEEDS_CONFIDENT == 0))
        & (rule & NEVER == 0)
        & (ids != controls[PAD]).any()
    )
    header = (stable, confident, stop, entropy.isfinite().all(), mean.view(torch.int32))
    outcome[: len(header)] = torch.stack([entry.int() for entry in header])
    probability, entropy = stats.argmax_prob.view(torch.int32), entropy.view(torch.int32)
    outcome[HEADER:] = torch.cat((ids, probability, entropy, accepted.int(), sampled.int(), canvas.int()))
    draft.copy_(ids)
    canvas.copy_(renoise(sampled, accepted, fresh))
