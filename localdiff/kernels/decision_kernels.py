"""Device code: the decision of a step, for all positions in one program.

`localdiff.kernels.decision_layout` has the layouts of `controls` and `outcome`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from localdiff.kernels import decision_layout as layout

_BOUND = tl.constexpr(layout.BOUND)
_CONFIDENCE = tl.constexpr(layout.CONFIDENCE)
_STABILITY = tl.constexpr(layout.STABILITY)
_RULE = tl.constexpr(layout.RULE)
_PAD = tl.constexpr(layout.PAD)
_STEP = tl.constexpr(layout.STEP)

_STABLE = tl.constexpr(layout.STABLE)
_CONFIDENT = tl.constexpr(layout.CONFIDENT)
_STOP = tl.constexpr(layout.STOP)
_FINITE = tl.constexpr(layout.FINITE)
_MEAN_ENTROPY = tl.constexpr(layout.MEAN_ENTROPY)
_HEADER = tl.constexpr(layout.HEADER)

_ARGMAX = tl.constexpr(layout.ARGMAX)
_PROBABILITY = tl.constexpr(layout.PROBABILITY)
_ENTROPY = tl.constexpr(layout.ENTROPY)
_ACCEPTED = tl.constexpr(layout.ACCEPTED)
_SAMPLED = tl.constexpr(layout.SAMPLED)
_SHOWN = tl.constexpr(layout.SHOWN)

_NEEDS_STABLE = tl.constexpr(layout.NEEDS_STABLE)
_NEEDS_CONFIDENT = tl.constexpr(layout.NEEDS_CONFIDENT)
_NEVER = tl.constexpr(layout.NEVER)


@triton.jit
def decide_kernel(
    controls,
    entropy,
    argmax,
    argmax_prob,
    sampled,
    fresh,
    canvas,
    draft,
    streak,
    outcome,
    length,
    POSITIONS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Accepts, renoises, tests the draft and packs what an event shows.

    `canvas`, `draft` and `streak` are read and written. Grid: (1,). `POSITIONS` is `length` rounded up to a power of 2.
    """
    position = tl.arange(0, POSITIONS)
    inside = position < length
    bound = tl.load(controls + _BOUND).to(tl.float32, bitcast=True)
    confidence = tl.load(controls + _CONFIDENCE).to(tl.float32, bitcast=True)
    stability = tl.load(controls + _STABILITY)
    rule = tl.load(controls + _RULE)
    pad = tl.load(controls + _PAD)
    step = tl.load(controls + _STEP)

    # Sum of the entropies of all positions with a lower entropy, or with the same one and a lower index.
    nats = tl.load(entropy + position, mask=inside, other=0.0)
    before = tl.zeros([POSITIONS], dtype=tl.float32)
    for start in range(0, length, CHUNK):
        other = start + tl.arange(0, CHUNK)
        other_nats = tl.load(entropy + other, mask=other < length, other=float("inf"))
        comes_first = (other_nats[None, :] < nats[:, None]) | (
            (other_nats[None, :] == nats[:, None]) & (other[None, :] < position[:, None])
        )
        before += tl.sum(tl.where(comes_first, other_nats[None, :], 0.0), axis=1)
    accepted = before <= bound

    ids = tl.load(argmax + position, mask=inside, other=0).to(tl.int32)
    drawn = tl.load(sampled + position, mask=inside, other=0).to(tl.int32)
    noise = tl.load(fresh + position, mask=inside, other=0)
    shown = tl.load(canvas + position, mask=inside, other=0).to(tl.int32)
    last_ids = tl.load(draft + position, mask=inside, other=0)

    changed = tl.sum((inside & (ids != last_ids)).to(tl.int32), axis=0)
    new_streak = tl.where((step > 1) & (changed == 0), tl.load(streak) + 1, 0)
    mean = tl.sum(tl.where(inside, nats, 0.0), axis=0) / length
    stable = new_streak >= stability
    confident = mean < confidence
    only_padding = tl.sum((inside & (ids != pad)).to(tl.int32), axis=0) == 0
    stop = (
        (stable | ((rule & _NEEDS_STABLE) == 0))
        & (confident | ((rule & _NEEDS_CONFIDENT) == 0))
        & ((rule & _NEVER) == 0)
        & (only_padding == 0)
    )
    # NaN and infinity minus themselves are NaN, which is not equal to 0.
    difference = nats - nats
    finite = tl.sum((inside & (difference == 0.0)).to(tl.int32), axis=0) == length

    # Threads that share a position must all have read it before one of them writes it.
    tl.debug_barrier()
    tl.store(canvas + position, tl.where(accepted, drawn, noise).to(tl.int64), mask=inside)
    tl.store(draft + position, ids, mask=inside)
    tl.store(streak, new_streak)
    tl.store(outcome + _STABLE, stable.to(tl.int32))
    tl.store(outcome + _CONFIDENT, confident.to(tl.int32))
    tl.store(outcome + _STOP, stop.to(tl.int32))
    tl.store(outcome + _FINITE, finite.to(tl.int32))
    tl.store(outcome + _MEAN_ENTROPY, mean.to(tl.int32, bitcast=True))
    rows = outcome + _HEADER + position
    probability = tl.load(argmax_prob + position, mask=inside, other=0.0)
    tl.store(rows + _ARGMAX * length, ids, mask=inside)
    tl.store(rows + _PROBABILITY * length, probability.to(tl.int32, bitcast=True), mask=inside)
    tl.store(rows + _ENTROPY * length, nats.to(tl.int32, bitcast=True), mask=inside)
    tl.store(rows + _ACCEPTED * length, accepted.to(tl.int32), mask=inside)
    tl.store(rows + _SAMPLED * length, drawn, mask=inside)
    tl.store(rows + _SHOWN * length, shown, mask=inside)
