"""Device code: fused pointwise ops between a layer's GEMMs, one program per row.

Everything is computed in fp32 and rounded where the plain path rounds: after each norm, product and sum.
Shape letters: N rows, D width, H query heads, K key-value heads, d head size, E experts, k experts a row.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normed(x, eps, width):
    """fp32 values of a row, 0 beyond its `width`, divided by their root mean square."""
    return x / tl.sqrt(tl.sum(x * x, axis=0) / width + eps)


@triton.jit
def rounded(x, like):
    """fp32 values rounded to the dtype that `like` points at."""
    return x.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def norm_kernel(x, weight, out, eps, width, WIDTH: tl.constexpr):
    """Rows [N, D] normed and weighted. Grid: (N,). `WIDTH` is `width` rounded up to a power of 2, here and below."""
    column = tl.arange(0, WIDTH)
    inside = column < width
    at = tl.program_id(0).to(tl.int64) * width + column
    row = normed(tl.load(x + at, mask=inside, other=0.0).to(tl.float32), eps, width)
    row *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, row.to(out.dtype.element_ty), mask=inside)


@triton.jit
def heads_kernel(
    q,
    k,
    v,
    q_weight,
    k_weight,
    cosines,
    sines,
    q_out,
    k_out,
    v_out,
    eps,
    heads,
    kv_heads,
    q_row,
    k_row,
    v_row,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
):
    """Queries [N, H, d] and keys [N, K, d] normed and rotated, values [N, K, d] normed. Grid: (N, H + 2 K).

    `cosines` and `sines` are [N, d]; element i is rotated with element i + d / 2. SIZE is d, HALF is d / 2 rounded
    up to a power of 2; `q_row`, `k_row` and `v_row` are row strides.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half = tl.arange(0, HALF)
    inside = half < SIZE // 2
    if head < heads:
        at = row * q_row + head * SIZE + half
        to = (row * heads + head) * SIZE + half
        _turned(q, q_weight, cosines, sines, q_out, at, to, row * SIZE + half, half, inside, eps, SIZE)
    elif head < heads + kv_heads:
        head -= heads
        at = row * k_row + head * SIZE + half
        to = (row * kv_heads + head) * SIZE + half
        _turned(k, k_weight, cosines, sines, k_out, at, to, row * SIZE + half, half, inside, eps, SIZE)
    else:
        head -= heads + kv_heads
        at = row * v_row + head * SIZE + half
        to = (row * kv_heads + head) * SIZE + half
        first = tl.load(v + at, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(v + at + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
        root = tl.sqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / SIZE + eps)
        tl.store(v_out + to, (first / root).to(v_out.dtype.element_ty), mask=inside)
        tl.store(v_out + to + SIZE // 2, (second / root).to(v_out.dtype.element_ty), mask=inside)


@triton.jit
def _turned(x, weight, cosines, sines, out, at, to, turn, half, inside, eps, SIZE: tl.constexpr):
    """One head, in halves from `at` to `to`: normed, weighted, rotated by the angles at `turn`."""
    first = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + at + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
    root = tl.sqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / SIZE + eps)
    first = first / root * tl.load(weight + half, mask=inside, other=0.0).to(tl.float32)
    second = second / root * tl.load(weight + half + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
    first, second = rounded(first, out), rounded(second, out)
    cosine = tl.load(cosines + turn, mask=inside, other=0.0).to(tl.float32)
    sine = tl.load(sines + turn, mask=inside, other=0.0).to(tl.float32)
    turned = rounded(first * cosine, out) - rounded(second * sine, out)
    tl.store(out + to, turned.to(out.dtype.element_ty), mask=inside)
    cosine = tl.load(cosines + turn + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
    sine = tl.load(sines + turn + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
    turned = rounded(second * cosine, out) + rounded(first * sine, out)
    tl.store(out + to + SIZE // 2, turned.to(out.dtype.element_ty), mask=inside)


@triton.jit
def after_attention_kernel(
    x,
    y,
    attention_weight,
    dense_weight,
    routed_weight,
    router_scale,
    stream,
    dense,
    routed,
    scored,
    eps,
    router_factor,
    width,
    WIDTH: tl.constexpr,
):
    """`stream = x + norm(y)`, and three norms of that, for MLP, experts and router: [N, D] each. Grid: (N,)."""
    column = tl.arange(0, WIDTH)
    inside = column < width
    at = tl.program_id(0).to(tl.int64) * width + column
    added = normed(tl.load(y + at, mask=inside, other=0.0).to(tl.float32), eps, width)
    added = rounded(added * tl.load(attention_weight + column, mask=inside, other=0.0).to(tl.float32), stream)
    summed = rounded(tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + added, stream)
    tl.store(stream + at, summed.to(stream.dtype.element_ty), mask=inside)
    row = normed(summed, eps, width)
    weight = tl.load(dense_weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(dense + at, (row * weight).to(dense.dtype.element_ty), mask=inside)
    weight = tl.load(routed_weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(routed + at, (row * weight).to(routed.dtype.element_ty), mask=inside)
    scale = tl.load(router_scale + column, mask=inside, other=0.0).to(tl.float32)
    row = rounded(rounded(row, scored) * scale, scored) * router_factor
    tl.store(scored + at, row.to(scored.dtype.element_ty), mask=inside)


@triton.jit
def gated_kernel(gate, up, out, gate_row, up_row, width, BLOCK: tl.constexpr):
    """`gelu(gate) * up` of rows [N, I], tanh form. Grid: (N, I / BLOCK rounded up).

    `gate_row` and `up_row` are row strides, `width` is I.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(gate + row * gate_row + column, mask=inside, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
    decay = tl.exp(-2.0 * tl.abs(inner))
    height = (1.0 - decay) / (1.0 + decay)
    opened = rounded(0.5 * value * (1.0 + tl.where(inner < 0.0, -height, height)), out)
    opened *= tl.load(up + row * up_row + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, opened.to(out.dtype.element_ty), mask=inside)


@triton.jit
def choose_kernel(scores, scale, index, weight, experts, TOP_K: tl.constexpr, EXPERTS: tl.constexpr):
    """The experts with the highest scores, the first of equal ones, and their shares of the chosen mass.

    Grid: (N,).

    Args:
        scores: [N, E]; scale: [E], factor on a share; index: int64 [N, k]; weight: fp32 [N, k].
        EXPERTS: `experts` rounded up to a power of 2.
    """
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, EXPERTS)
    inside = expert < experts
    score = tl.load(scores + row * experts + expert, mask=inside, other=float("-inf")).to(tl.float32)
    left = tl.where(inside, tl.exp(score - tl.max(score, axis=0)), -1.0)
    chosen_mass = 0.0
    for slot in tl.static_range(TOP_K):
        best = tl.minimum(tl.argmax(left, axis=0), experts - 1)  # even of NaN scores
        mass = tl.max(left, axis=0)
        chosen_mass += mass
        tl.store(index + row * TOP_K + slot, best.to(tl.int64))
        left = tl.where(expert == best, -1.0, left)
    left = tl.where(inside, tl.exp(score - tl.max(score, axis=0)), -1.0)
    for slot in tl.static_range(TOP_K):
        best = tl.minimum(tl.argmax(left, axis=0), experts - 1)  # even of NaN scores
        share = tl.max(left, axis=0) / chosen_mass * tl.load(scale + best).to(tl.float32)
        tl.store(weight + row * TOP_K + slot, share)
        left = tl.where(expert == best, -1.0, left)


@triton.jit
def close_kernel(
    x,
    dense,
    routed,
    share,
    dense_weight,
    routed_weight,
    both_weight,
    is_canvas,
    canvas_scalar,
    encoder_scalar,
    out,
    eps,
    width,
    TOP_K: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """`(x + norm(norm(dense) + norm(routed))) * scalar`, [N, D]; `is_canvas` [N] chooses the scalar. Grid: (N,).

    Where TOP_K is not 0, `routed` is [N, k, D], and what is normed is its sum weighted by `share`, fp32 [N, k].
    """
    column = tl.arange(0, WIDTH)
    inside = column < width
    place = tl.program_id(0)
    at = place.to(tl.int64) * width + column
    one = normed(tl.load(dense + at, mask=inside, other=0.0).to(tl.float32), eps, width)
    one = rounded(one * tl.load(dense_weight + column, mask=inside, other=0.0).to(tl.float32), out)
    if TOP_K:
        two = tl.zeros([WIDTH], dtype=tl.float32)
        for slot in tl.static_range(TOP_K):
            pair = place.to(tl.int64) * TOP_K + slot
            value = tl.load(routed + pair * width + column, mask=inside, other=0.0).to(tl.float32)
            two += value * tl.load(share + pair)
        two = rounded(two, routed)
    else:
        two = tl.load(routed + at, mask=inside, other=0.0).to(tl.float32)
    two = normed(two, eps, width)
    two = rounded(two * tl.load(routed_weight + column, mask=inside, other=0.0).to(tl.float32), out)
    both = normed(rounded(one + two, out), eps, width)
    both = rounded(both * tl.load(both_weight + column, mask=inside, other=0.0).to(tl.float32), out)
    summed = rounded(tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + both, out)
    canvas, encoder = tl.load(canvas_scalar).to(tl.float32), tl.load(encoder_scalar).to(tl.float32)
    scalar = tl.where(tl.load(is_canvas + place) != 0, canvas, encoder)
    tl.store(out + at, (summed * scalar).to(out.dtype.element_ty), mask=inside)
