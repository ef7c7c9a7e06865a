"""Fused pointwise ops between a layer's GEMMs, one Triton launch each; `localdiff.model.layer_ops` is the plain path.

A layer's activations are a few megabytes, read and written by each of some hundred small ops; here each layer op reads
its inputs once. Knows rows and weights; knows no modules.
Shape letters: N rows, D width, H query heads, K key-value heads, d head size, E experts, k experts a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quant.cuda.launch_arguments import power_of_two

BLOCK = 1024
_NARROW = 1024
"""Widest row, head or table of scores for which one warp is enough."""


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of rows [..., D], times `weight` [D]."""
    from .layer_ops_kernels import norm_kernel

    x = x.contiguous()
    out, width = torch.empty_like(x), x.shape[-1]
    if x.numel():
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # Triton launches on the current device
            norm_kernel[(x.numel() // width,)](x, weight, out, eps, width, WIDTH=_power(width), num_warps=_warps(width))
    return out


def heads(
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
    from .layer_ops_kernels import heads_kernel

    q, k = _dense_rows(q), _dense_rows(k)
    v = k if v is None else _dense_rows(v)
    made = q.new_empty(q.shape), k.new_empty(k.shape), k.new_empty(k.shape)
    rows, count, size = q.shape
    kv_heads = k.shape[1]
    if rows:
        with torch.cuda.device_of(q):  # type: ignore[no-untyped-call]
            heads_kernel[(rows, count + 2 * kv_heads)](
                q,
                k,
                v,
                q_weight,
                k_weight,
                *rotary,
                *made,
                eps,
                count,
                kv_heads,
                q.stride(0),
                k.stride(0),
                v.stride(0),
                SIZE=size,
                HALF=_power(size // 2),
                num_warps=1,
                enable_fp_fusion=False,  # a fused multiply-add would leave out the rounding of one product
            )
    return made


def after_attention(
    x: Tensor,
    y: Tensor,
    *,
    attention: Tensor,
    dense: Tensor,
    routed: Tensor,
    router: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`x + norm(y)` and three norms of that: for the MLP, for the experts, and scaled by D^-½ for the router.

    Args:
        x, y: [N, D]; the others: [D], the weights of the four norms.
    """
    from .layer_ops_kernels import after_attention_kernel

    x, y = x.contiguous(), y.contiguous()
    made = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    rows, width = x.shape
    if rows:
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            after_attention_kernel[(rows,)](
                x,
                y,
                attention,
                dense,
                routed,
                router,
                *made,
                eps,
                width**-0.5,
                width,
                WIDTH=_power(width),
                num_warps=_warps(width),
            )
    return made


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """`gelu(gate) * up`, the tanh form, of rows [..., I], which may be strided."""
    from .layer_ops_kernels import gated_kernel

    width = gate.shape[-1]
    gates, ups = (_dense_rows(part.reshape(-1, width)) for part in (gate, up))
    out = gate.new_empty(gate.shape)
    if out.numel():
        with torch.cuda.device_of(gate):  # type: ignore[no-untyped-call]
            gated_kernel[(len(gates), -(-width // BLOCK))](
                gates, ups, out, gates.stride(0), ups.stride(0), width, BLOCK=BLOCK, num_warps=4
            )
    return out


def choose(scores: Tensor, scale: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """The experts int64 [N, k] of the highest scores [N, E], and their shares fp32 [N, k] times `scale` [E]."""
    from .layer_ops_kernels import choose_kernel

    scores = scores.contiguous()
    rows, experts = scores.shape
    index = scores.new_empty(rows, top_k, dtype=torch.int64)
    weight = scores.new_empty(rows, top_k, dtype=torch.float32)
    if rows:
        with torch.cuda.device_of(scores):  # type: ignore[no-untyped-call]
            choose_kernel[(rows,)](
                scores, scale, index, weight, experts, TOP_K=top_k, EXPERTS=_power(experts), num_warps=1
            )
    return index, weight


def close(
    x: Tensor,
    dense: Tensor,
    routed: Tensor,
    share: Tensor | None,
    *,
    dense_weight: Tensor,
    routed_weight: Tensor,
    both_weight: Tensor,
    is_canvas: Tensor,
    canvas_scalar: Tensor,
    encoder_scalar: Tensor,
    eps: float,
) -> Tensor:
    """`(x + norm(norm(dense) + norm(routed))) * scalar` of rows [N, D].

    Args:
        routed: [N, D]; or [N, k, D], then summed with weights `share` fp32 [N, k] and rounded to its dtype.
        dense_weight, routed_weight, both_weight: [D], of the three norms.
        is_canvas: bool [N], which rows take `canvas_scalar` [1]; the others take `encoder_scalar` [1].
    """
    from .layer_ops_kernels import close_kernel

    x, dense, routed = x.contiguous(), dense.contiguous(), routed.contiguous()
    out = torch.empty_like(x)
    share = None if share is None else share.contiguous()
    rows, width = x.shape
    if rows:
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            close_kernel[(rows,)](
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
                TOP_K=0 if share is None else share.shape[1],
                WIDTH=_power(width),
                num_warps=_warps(width),
            )
    return out


def _dense_rows(x: Tensor) -> Tensor:
    """Rows [N, ...], each contiguous."""
    return x if x[:1].is_contiguous() else x.contiguous()


def _power(number: int) -> int:
    return max(2, power_of_two(number))


def _warps(width: int) -> int:
    return 1 if width <= _NARROW else 8
