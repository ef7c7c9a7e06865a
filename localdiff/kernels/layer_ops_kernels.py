"""Device code: fused pointwise ops between a layer's GEMMs, one program per row.

Everything is computed in fp32 and rounded where the plain path rounds: after each norm, product and sum.
Shape letters: N rows, D width, H query heads, K key-value heads, d head size, E experts, k experts per row,
I inner width.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quant.cuda.activation_kernels import gelu


@triton.jit
def rms_norm(x, eps, width):
    """fp32 values of a row, 0 beyond its `width`, divided by their root mean square."""
    return x / tl.sqrt(tl.sum(x * x, axis=0) / width + eps)


@triton.jit
def round_like(x, like):
    """fp32 values rounded to the dtype that `like` points at, and back in fp32."""
    return x.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def load_row(pointers, inside):
    """fp32 values of a row, 0 beyond its width."""
    return tl.load(pointers, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_sum(x, offset, part_stride, inside, like, PARTS: tl.constexpr):
    """fp32 values of a row; or, from more than one part in fp32, their sum, rounded to the dtype of `like`."""
    value = load_row(x + offset, inside)
    if PARTS > 1:
        for part in tl.static_range(1, PARTS):
            value += load_row(x + part * part_stride + offset, inside)
        value = round_like(value, like)
    return value


@triton.jit
def norm_kernel(x, weight, out, eps, width, WIDTH: tl.constexpr):
    """Rows [N, D] normed and weighted. Grid: (N,). `WIDTH` is `width` rounded up to a power of 2, here and below."""
    column = tl.arange(0, WIDTH)
    inside = column < width
    offset = tl.program_id(0).to(tl.int64) * width + column
    of_row, row = load_row(weight + column, inside), load_row(x + offset, inside)
    row = rms_norm(row, eps, width) * of_row
    tl.store(out + offset, row.to(out.dtype.element_ty), mask=inside)


@triton.jit
def qkv_norm_rope_kernel(
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
    q_row_stride,
    k_row_stride,
    v_row_stride,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
):
    """Queries [N, H, d] and keys [N, K, d] normed and rotated, values [N, K, d] normed. Grid: (N, H + 2 K).

    `cosines` and `sines` are [N, d]; element i is rotated with element i + d / 2. SIZE is d, HALF is d / 2 rounded
    up to a power of 2.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half = tl.arange(0, HALF)
    inside = half < SIZE // 2
    if head < heads:
        source = row * q_row_stride + head * SIZE + half
        target = (row * heads + head) * SIZE + half
        _norm_rope(q, q_weight, cosines, sines, q_out, source, target, row * SIZE + half, half, inside, eps, SIZE)
    elif head < heads + kv_heads:
        head -= heads
        source = row * k_row_stride + head * SIZE + half
        target = (row * kv_heads + head) * SIZE + half
        _norm_rope(k, k_weight, cosines, sines, k_out, source, target, row * SIZE + half, half, inside, eps, SIZE)
    else:
        head -= heads + kv_heads
        source = row * v_row_stride + head * SIZE + half
        target = (row * kv_heads + head) * SIZE + half
        first, second = load_row(v + source, inside), load_row(v + source + SIZE // 2, inside)
        rms = tl.sqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / SIZE + eps)
        tl.store(v_out + target, (first / rms).to(v_out.dtype.element_ty), mask=inside)
        tl.store(v_out + target + SIZE // 2, (second / rms).to(v_out.dtype.element_ty), mask=inside)


@triton.jit
def _norm_rope(x, weight, cosines, sines, out, source, target, angle, half, inside, eps, SIZE: tl.constexpr):
    """One head: normed, weighted, rotated.

    `source`, `target` and `angle` are the offsets of its first half in `x`, in `out`, and in `cosines` and `sines`.
    """
    first, second = load_row(x + source, inside), load_row(x + source + SIZE // 2, inside)
    of_first, of_second = load_row(weight + half, inside), load_row(weight + half + SIZE // 2, inside)
    first_cosine, first_sine = load_row(cosines + angle, inside), load_row(sines + angle, inside)
    second_cosine = load_row(cosines + angle + SIZE // 2, inside)
    second_sine = load_row(sines + angle + SIZE // 2, inside)
    rms = tl.sqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / SIZE + eps)
    first, second = round_like(first / rms * of_first, out), round_like(second / rms * of_second, out)
    rotated = round_like(first * first_cosine, out) - round_like(second * first_sine, out)
    tl.store(out + target, rotated.to(out.dtype.element_ty), mask=inside)
    rotated = round_like(second * second_cosine, out) + round_like(first * second_sine, out)
    tl.store(out + target + SIZE // 2, rotated.to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_attention_and_norm_kernel(
    x,
    y,
    attention_weight,
    dense_weight,
    expert_weight,
    router_scale,
    residual,
    dense_in,
    expert_in,
    router_in,
    eps,
    router_factor,
    width,
    part_stride,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """`residual = x + norm(y)`, and three norms of that, for MLP, experts and router: [N, D] each. Grid: (N,).

    With more than one of PARTS, `y` is their sum [PARTS, N, D]; `part_stride` is N D.
    """
    column = tl.arange(0, WIDTH)
    inside = column < width
    offset = tl.program_id(0).to(tl.int64) * width + column
    # All of it is loaded ahead of the first norm, whose sum no load can be moved across.
    added = load_sum(y, offset, part_stride, inside, residual, PARTS)
    before = load_row(x + offset, inside)
    of_attention, of_dense = load_row(attention_weight + column, inside), load_row(dense_weight + column, inside)
    of_experts, scale = load_row(expert_weight + column, inside), load_row(router_scale + column, inside)
    added = round_like(rms_norm(added, eps, width) * of_attention, residual)
    total = round_like(before + added, residual)
    tl.store(residual + offset, total.to(residual.dtype.element_ty), mask=inside)
    row = rms_norm(total, eps, width)
    tl.store(dense_in + offset, (row * of_dense).to(dense_in.dtype.element_ty), mask=inside)
    tl.store(expert_in + offset, (row * of_experts).to(expert_in.dtype.element_ty), mask=inside)
    row = round_like(round_like(row, router_in) * scale, router_in) * router_factor
    tl.store(router_in + offset, row.to(router_in.dtype.element_ty), mask=inside)


@triton.jit
def gelu_mul_kernel(gate, up, out, gate_row_stride, up_row_stride, width, BLOCK: tl.constexpr):
    """`gelu(gate) * up` of rows [N, I], tanh form; `width` is I. Grid: (N, I / BLOCK rounded up)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(gate + row * gate_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    value = round_like(gelu(value), out)
    value *= tl.load(up + row * up_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def route_kernel(
    scores,
    per_expert_scale,
    expert_ids,
    routing_weights,
    experts,
    part_stride,
    PARTS: tl.constexpr,
    TOP_K: tl.constexpr,
    SLOTS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    """The experts with the highest scores, the first of equal ones, and their renormalised probabilities.

    Grid: (N,).

    Args:
        scores: [N, E]; with more than one of PARTS, the parts of their sum [PARTS, N, E], `part_stride` is N E.
        per_expert_scale: [E], factor on a weight; a sum of parts is rounded to its dtype.
        expert_ids: int64 [N, k]; routing_weights: fp32 [N, k].
        SLOTS, EXPERTS: k and `experts` rounded up to a power of 2.
    """
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, EXPERTS)
    inside = expert < experts
    score = load_sum(scores, row * experts + expert, part_stride, inside, per_expert_scale, PARTS)
    score = tl.where(inside, score, float("-inf"))
    remaining = tl.where(inside, tl.exp(score - tl.max(score, axis=0)), -1.0)
    slot = tl.arange(0, SLOTS)
    chosen, exponentials = tl.zeros([SLOTS], dtype=tl.int32), tl.zeros([SLOTS], dtype=tl.float32)
    top_k_sum = 0.0
    for turn in tl.static_range(TOP_K):
        exponential, best = tl.max(remaining, axis=0, return_indices=True)
        best = tl.minimum(best, experts - 1)  # within bounds even for NaN scores
        top_k_sum += exponential
        chosen, exponentials = tl.where(slot == turn, best, chosen), tl.where(slot == turn, exponential, exponentials)
        remaining = tl.where(expert == best, -1.0, remaining)
    is_slot = slot < TOP_K
    weight = exponentials / top_k_sum * tl.load(per_expert_scale + chosen).to(tl.float32)
    tl.store(expert_ids + row * TOP_K + slot, chosen.to(tl.int64), mask=is_slot)
    tl.store(routing_weights + row * TOP_K + slot, weight, mask=is_slot)


@triton.jit
def merge_branches_kernel(
    x,
    dense_out,
    expert_out,
    routing_weights,
    dense_weight,
    expert_weight,
    both_weight,
    is_canvas,
    canvas_scalar,
    encoder_scalar,
    out,
    eps,
    width,
    part_stride,
    PARTS: tl.constexpr,
    TOP_K: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """`(x + norm(norm(dense_out) + norm(expert_out))) * scalar`, [N, D]. Grid: (N,).

    `is_canvas` [N] chooses the scalar. With more than one of PARTS, `dense_out` is their sum [PARTS, N, D];
    `part_stride` is N D. If TOP_K is not 0, `expert_out` is [N, k, D], and what is normed is its sum
    weighted by `routing_weights`, fp32 [N, k].
    """
    column = tl.arange(0, WIDTH)
    inside = column < width
    row = tl.program_id(0)
    offset = row.to(tl.int64) * width + column
    # All of it is loaded ahead of the first norm, whose sum no load can be moved across.
    if TOP_K:
        expert = tl.zeros([WIDTH], dtype=tl.float32)
        for slot in tl.static_range(TOP_K):
            pair = row.to(tl.int64) * TOP_K + slot
            expert += load_row(expert_out + pair * width + column, inside) * tl.load(routing_weights + pair)
        expert = round_like(expert, expert_out)
    else:
        expert = load_row(expert_out + offset, inside)
    dense = load_sum(dense_out, offset, part_stride, inside, out, PARTS)
    before = load_row(x + offset, inside)
    of_dense, of_experts = load_row(dense_weight + column, inside), load_row(expert_weight + column, inside)
    of_both = load_row(both_weight + column, inside)
    dense = round_like(rms_norm(dense, eps, width) * of_dense, out)
    expert = round_like(rms_norm(expert, eps, width) * of_experts, out)
    both = round_like(rms_norm(round_like(dense + expert, out), eps, width) * of_both, out)
    total = round_like(before + both, out)
    canvas, encoder = tl.load(canvas_scalar).to(tl.float32), tl.load(encoder_scalar).to(tl.float32)
    scalar = tl.where(tl.load(is_canvas + row) != 0, canvas, encoder)
    tl.store(out + offset, (total * scalar).to(out.dtype.element_ty), mask=inside)
