"""Device code: the decision of a step, for all positions in one program.

Shape letters: L canvas.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
    """Accepts, renoises, tests the draft and packs what an event shows; `localdiff.kernels.decision` has the layouts.

    `canvas`, `draft` and `streak` are read and written. Grid: (1,). `POSITIONS` is `length` rounded up to a power of 2.
    """
    place = tl.arange(0, POSITIONS)
    inside = place < length
    bound = tl.load(controls + 1).to(tl.float32, bitcast=True)
    confidence = tl.load(controls + 2).to(tl.float32, bitcast=True)
    stability = tl.load(controls + 3)
    rule = tl.load(controls + 4)
    pad = tl.load(controls + 5)
    step = tl.load(controls + 6)

    nats = tl.load(entropy + place, mask=inside, other=0.0)
    before = tl.zeros([POSITIONS], dtype=tl.float32)
    for start in range(0, length, CHUNK):
        other = start + tl.arange(0, CHUNK)
        theirs = tl.load(entropy + other, mask=other < length, other=float("inf"))
        surer = (theirs[None, :] < nats[:, None]) | (
            (theirs[None, :] == nats[:, None]) & (other[None, :] < place[:, None])
        )
        before += tl.sum(tl.where(surer, theirs[None, :], 0.0), axis=1)
    accepted = before <= bound

    ids = tl.load(argmax + place, mask=inside, other=0).to(tl.int32)
    drawn = tl.load(sampled + place, mask=inside, other=0).to(tl.int32)
    noise = tl.load(fresh + place, mask=inside, other=0)
    shown = tl.load(canvas + place, mask=inside, other=0).to(tl.int32)
    earlier = tl.load(draft + place, mask=inside, other=0)

    changed = tl.sum((inside & (ids != earlier)).to(tl.int32), axis=0)
    same = tl.where((step > 1) & (changed == 0), tl.load(streak) + 1, 0)
    mean = tl.sum(tl.where(inside, nats, 0.0), axis=0) / length
    stable = same >= stability
    confident = mean < confidence
    only_padding = tl.sum((inside & (ids != pad)).to(tl.int32), axis=0) == 0
    met = (stable | ((rule & 1) == 0)) & (confident | ((rule & 2) == 0)) & ((rule & 4) == 0) & (only_padding == 0)
    # NaN and infinity minus themselves are NaN; both comparisons are false for it.
    gap = nats - nats
    numbers = tl.sum((inside & (gap == 0.0)).to(tl.int32), axis=0) == length

    # Threads that share a position must all have read it before one of them writes it.
    tl.debug_barrier()
    tl.store(canvas + place, tl.where(accepted, drawn, noise).to(tl.int64), mask=inside)
    tl.store(draft + place, ids, mask=inside)
    tl.store(streak, same)
    tl.store(outcome + 0, stable.to(tl.int32))
    tl.store(outcome + 1, confident.to(tl.int32))
    tl.store(outcome + 2, met.to(tl.int32))
    tl.store(outcome + 3, numbers.to(tl.int32))
    tl.store(outcome + 4, mean.to(tl.int32, bitcast=True))
    rows = outcome + 8 + place
    probability = tl.load(argmax_prob + place, mask=inside, other=0.0)
    tl.store(rows, ids, mask=inside)
    tl.store(rows + length, probability.to(tl.int32, bitcast=True), mask=inside)
    tl.store(rows + 2 * length, nats.to(tl.int32, bitcast=True), mask=inside)
    tl.store(rows + 3 * length, accepted.to(tl.int32), mask=inside)
    tl.store(rows + 4 * length, drawn, mask=inside)
    tl.store(rows + 5 * length, shown, mask=inside)
