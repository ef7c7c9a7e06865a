"""Fused pointwise ops between a layer's GEMMs, one Triton launch each; `localdiff.model.layer_ops` is the plain path.

A layer's activations are a few megabytes, which some hundred small ops would each read and write; here each layer op
reads its inputs once. Knows rows and weights; knows no modules.
Shape letters: N rows, D width, H query heads, K key-value heads, d head size, E experts, k experts per row,
I inner width, S parts of a sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quant.cuda.launch_arguments import on_device_of, power_of_two

BLOCK = 1024
_MAX_ONE_WARP = 1024
"""Longest row for which one warp is enough."""


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of rows [..., D], times `weight` [D]."""
    from localdiff.kernels.layer_ops_kernels import norm_kernel

    x = x.contiguous()
    out, width = torch.empty_like(x), x.shape[-1]
    if x.numel():
        with on_device_of(x):
            norm_kernel[(x.numel() // width,)](
                x, weight, out, eps, width, WIDTH=_power(width), num_warps=_warps(width), enable_fp_fusion=True
            )
    return out


def qkv_norm_rope(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    q_weight: Tensor,
    k_weight: Tensor,
    rotary: tuple[Tensor, Tensor],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [N, H, d] and keys [N, K, d] normed and rotated, values [N, K, d] normed.

    Rows of each may be strided, as in slices of a fused projection.

    Args:
        v: None where values are the keys as passed in.
        rotary: cosines and sines [N, d], in the dtype of `q`.
    """
    from localdiff.kernels.layer_ops_kernels import qkv_norm_rope_kernel

    q, k = _dense_rows(q), _dense_rows(k)
    v = k if v is None else _dense_rows(v)
    outputs = q.new_empty(q.shape), k.new_empty(k.shape), k.new_empty(k.shape)
    rows, heads, size = q.shape
    kv_heads = k.shape[1]
    if rows:
        with on_device_of(q):
            qkv_norm_rope_kernel[(rows, heads + 2 * kv_heads)](
                q,
                k,
                v,
                q_weight,
                k_weight,
                *rotary,
                *outputs,
                eps,
                heads,
                kv_heads,
                q.stride(0),
                k.stride(0),
                v.stride(0),
                SIZE=size,
                HALF=_power(size // 2),
                num_warps=1,
                enable_fp_fusion=False,  # a fused multiply-add would skip the rounding of one product
            )
    return outputs


def add_attention_and_norm(
    x: Tensor,
    y: Tensor,
    *,
    attention_weight: Tensor,
    dense_weight: Tensor,
    expert_weight: Tensor,
    router_scale: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`x + norm(y)` and three norms of that: for the MLP, for the experts, and for the router, scaled by D^-½.

    Args:
        x, y: [N, D]; `y` may also be the parts of its sum [S, N, D] in fp32.
        attention_weight, dense_weight, expert_weight, router_scale: [D], the weights of the four norms.
    """
    from localdiff.kernels.layer_ops_kernels import add_attention_and_norm_kernel

    x, y = x.contiguous(), y.contiguous()
    outputs = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    rows, width = x.shape
    if rows:
        with on_device_of(x):
            add_attention_and_norm_kernel[(rows,)](
                x,
                y,
                attention_weight,
                dense_weight,
                expert_weight,
                router_scale,
                *outputs,
                eps,
                width**-0.5,
                width,
                rows * width,
                PARTS=_parts(x, y),
                WIDTH=_power(width),
                num_warps=_warps(width),
                enable_fp_fusion=True,
            )
    return outputs


def gelu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """`gelu(gate) * up`, the tanh form, of rows [..., I], which may be strided."""
    from localdiff.kernels.layer_ops_kernels import gelu_mul_kernel

    width = gate.shape[-1]
    gates, ups = (_dense_rows(part.reshape(-1, width)) for part in (gate, up))
    out = gate.new_empty(gate.shape)
    if out.numel():
        with on_device_of(gate):
            gelu_mul_kernel[(len(gates), -(-width // BLOCK))](
                gates, ups, out, gates.stride(0), ups.stride(0), width, BLOCK=BLOCK, num_warps=4, enable_fp_fusion=True
            )
    return out


def route(scores: Tensor, per_expert_scale: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Expert ids int64 [N, k] of the highest scores [N, E], and routing weights fp32 [N, k].

    The weights are the experts' probabilities, renormalised over the chosen k, times `per_expert_scale` [E].

    Args:
        scores: may also be the parts of their sum [S, N, E] in fp32; it is rounded to the dtype of `per_expert_scale`.
    """
    from localdiff.kernels.layer_ops_kernels import route_kernel

    scores = scores.contiguous()
    rows, experts = scores.shape[-2:]
    expert_ids = scores.new_empty(rows, top_k, dtype=torch.int64)
    routing_weights = scores.new_empty(rows, top_k, dtype=torch.float32)
    if rows:
        with on_device_of(scores):
            route_kernel[(rows,)](
                scores,
                per_expert_scale,
                expert_ids,
                routing_weights,
                experts,
                rows * experts,
                PARTS=len(scores) if scores.dim() > 2 else 1,
                TOP_K=top_k,
                SLOTS=_power(top_k),
                EXPERTS=_power(experts),
                num_warps=1,
                enable_fp_fusion=True,
            )
    return expert_ids, routing_weights


def merge_branches(
    x: Tensor,
    dense_out: Tensor,
    expert_out: Tensor,
    routing_weights: Tensor | None,
    *,
    dense_weight: Tensor,
    expert_weight: Tensor,
    both_weight: Tensor,
    is_canvas: Tensor,
    canvas_scalar: Tensor,
    encoder_scalar: Tensor,
    eps: float,
) -> Tensor:
    """`(x + norm(norm(dense_out) + norm(expert_out))) * scalar` of rows [N, D].

    Args:
        dense_out: [N, D], or the parts of its sum [S, N, D] in fp32.
        expert_out: [N, D]; or [N, k, D], which is first summed with `routing_weights` fp32 [N, k] and rounded to its
            dtype.
        dense_weight, expert_weight, both_weight: [D], of the three norms.
        is_canvas: bool [N], which rows take `canvas_scalar` [1]; the others take `encoder_scalar` [1].
    """
    from localdiff.kernels.layer_ops_kernels import merge_branches_kernel

    x, dense_out, expert_out = x.contiguous(), dense_out.contiguous(), expert_out.contiguous()
    out = torch.empty_like(x)
    routing_weights = None if routing_weights is None else routing_weights.contiguous()
    rows, width = x.shape
    if rows:
        with on_device_of(x):
            merge_branches_kernel[(rows,)](
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
                rows * width,
                PARTS=_parts(x, dense_out),
                TOP_K=0 if routing_weights is None else routing_weights.shape[1],
                WIDTH=_power(width),
                num_warps=_warps(width),
                enable_fp_fusion=True,
            )
    return out


def _parts(x: Tensor, y: Tensor) -> int:
    """How many parts of a sum of rows like `x` there are in `y`."""
    return len(y) if y.dim() > x.dim() else 1


def _dense_rows(x: Tensor) -> Tensor:
    """Rows [N, ...], each contiguous; between them there may be gaps."""
    return x if x[:1].is_contiguous() else x.contiguous()


def _power(number: int) -> int:
    return max(2, power_of_two(number))


def _warps(width: int) -> int:
    return 1 if width <= _MAX_ONE_WARP else 8
