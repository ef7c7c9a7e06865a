"""Attention and all attention masks.

Knows queries, keys and values, and which keys a row may see:

                      cached positions           commit rows        canvas rows
    commit rows       causal, within window      causal             never
    canvas rows       all that a ring keeps*     as cached          all, both directions

    * sliding layers: the last `window - 1` positions, the same for every canvas row; full layers: everything.

Shape letters: N rows (C commit + L canvas), H query heads, K key-value heads, T keys, d head size, D width,
B batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localdiff.kernels.attention import attend_rows, write_cached
from localdiff.model.cache import LayerCache
from localdiff.model.config import LayerConfig, ModelConfig
from localdiff.model.layers import RMSNorm
from localdiff.model.projections import Projections, last_projection
from quant.cpu.native.attention import KeysValues, NativeAttention
from quant.modules.linear import Linear

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [..., H, N, d], k [..., K, N, d], v like k) -> [..., H, N, d], with a mask and perhaps a cache bound to it."""

MAX_SCORES = 8 * 1024 * 1024
"""Scores of one pass over the keys stay under this many elements (34 MB in fp32), whatever the context."""
# Rows of a block that leaves out the keys none of its rows sees. With fewer rows per block, hardly more keys would be
# left out, in more calls.
_NARROW_ROWS = 256


class Attention(Projections):
    """Projections and norms of one layer's attention. Scores are not scaled: the norms of q and k do that."""

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        super().__init__()
        width, d = config.hidden_size, layer.head_dim
        self.q_proj: nn.Module = Linear(width, config.num_heads * d)
        self.k_proj: nn.Module = Linear(width, layer.num_kv_heads * d)
        self.v_proj: nn.Module | None = None
        if not layer.keys_are_values:
            self.v_proj = Linear(width, layer.num_kv_heads * d)
        self.o_proj: nn.Module = Linear(config.num_heads * d, width)
        self.q_norm = RMSNorm(d, config.rms_norm_eps)
        self.k_norm = RMSNorm(d, config.rms_norm_eps)
        self._head_dim = d
        self.eps = config.rms_norm_eps

    def projections(self) -> tuple[nn.Module, ...]:
        return (self.q_proj, self.k_proj) if self.v_proj is None else (self.q_proj, self.k_proj, self.v_proj)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], attend: Attend, *, in_parts: bool = False) -> Tensor:
        """Attends rows [..., N, D] to what `attend` lets them see; see `last_projection` for `in_parts`."""
        q, k, v = self.layer_ops.qkv_norm_rope(*self._qkv(x), self.q_norm.weight, self.k_norm.weight, rotary, self.eps)
        y = attend(q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2))
        return last_projection(self.o_proj, y.transpose(-3, -2).flatten(-2), in_parts=in_parts)

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Query, key and value heads before their norms; values are None where they are the keys."""
        q, k, *v = (rows.view(*x.shape[:-1], -1, self._head_dim) for rows in self.project(x))
        return q, k, v[0] if v else None


def attend_cached(cache: LayerCache, length: int, commit_rows: int, kernel: NativeAttention | None = None) -> Attend:
    """Attention of `[commit rows | canvas rows]` through one layer's cache, for a single sequence.

    Commit rows read the cache before they are written into it: a ring would otherwise lose what the first of them
    needs.

    Args:
        length: positions in the cache before this pass.
        commit_rows: how many of the N rows are written into the cache; the rest are canvas rows.
        kernel: computes instead of torch where it can.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        if commit_rows:
            new_k, new_v = k[:, :commit_rows], v[:, :commit_rows]
            mask = causal_mask(cache, length, commit_rows)
            parts.append(_attend_parts(q[:, :commit_rows], (cache.read(length), (new_k, new_v)), mask, kernel))
            cache.write(new_k, new_v, length)
        if commit_rows < q.shape[1]:
            canvas = k[:, commit_rows:], v[:, commit_rows:]
            parts.append(_attend_parts(q[:, commit_rows:], (cache.read(length + commit_rows), canvas), None, kernel))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    return attend


def attend_through_triton(cache: LayerCache, length: Tensor, commit_rows: int) -> Attend:
    """Like `attend_cached`, in kernels that read the length on the device, so that launches do not depend on it.

    Args:
        length: integer scalar on the device: positions in the cache before this pass.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = attend_rows(
            q,
            k,
            v,
            keys=cache.keys,
            values=cache.values,
            length=length,
            commit_rows=commit_rows,
            window=cache.window,
        )
        write_cached(k, v, keys=cache.keys, values=cache.values, length=length, commit_rows=commit_rows)
        return y

    return attend


def _attend_parts(
    q: Tensor, parts: Sequence[KeysValues], mask: Tensor | None, kernel: NativeAttention | None
) -> Tensor:
    if kernel is not None and kernel.takes(q, parts):
        return kernel(q, parts, mask)
    keys, values = (torch.cat(tensors, dim=1) for tensors in zip(*parts, strict=True))
    # Never narrowed on a GPU: asking it which keys are seen would make the host wait in each layer.
    return attention(q, keys, values, mask, narrowed=mask is not None and keys.device.type == "cpu")


def causal_mask(cache: LayerCache, length: int, commit_rows: int) -> Tensor:
    """Which of `[cached | commit]` keys each commit row sees: bool [C, T], causal and within the layer's window."""
    rows = torch.arange(length, length + commit_rows, device=cache.keys.device)
    keys = torch.cat((cache.positions(length), rows))
    visible = keys <= rows[:, None]
    return visible if cache.window is None else visible & (keys > rows[:, None] - cache.window)


def training_mask(encoder_rows: Tensor, longest: int, canvas_length: int, window: int | None) -> Tensor:
    """The masks of commit and canvas rows for whole sequences without a cache: padded encoder rows, then one canvas.

    Args:
        encoder_rows: [B] number of real encoder rows of each sequence; rows beyond are padding up to `longest`.

    Returns:
        bool [B, 1, N, N] with N = longest + canvas_length. Padding rows stay causal, so that no softmax is empty.
    """
    row = torch.arange(longest + canvas_length, device=encoder_rows.device)
    query, key = row[:, None], row[None, :]
    count = encoder_rows[:, None, None]
    is_encoder_key = key < longest
    causal = is_encoder_key & (key <= query)
    seen_by_canvas = is_encoder_key & (key < count)
    if window is not None:
        causal = causal & (query - key < window)
        seen_by_canvas = seen_by_canvas & (key >= count - (window - 1))
    mask = torch.where(query < longest, causal, seen_by_canvas | ~is_encoder_key)
    return mask[:, None]


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, narrowed: bool = False) -> Tensor:
    """Softmax attention with query heads folded over their key-value head, in blocks of rows.

    Where no fused kernel takes grouped heads, folding avoids copies of keys and values, and the blocks bound the size
    of the scores.

    Args:
        q: [H, N, d]; k, v: [K, T, d]; mask: bool [N, T], True where a row may attend, or None for everywhere.
        narrowed: whether a block leaves out the keys that none of its rows sees; the host reads the mask for that.

    Returns:
        [H, N, d]. Scores and softmax are fp32 inside the kernel: unscaled scores grow large, and rounding them to bf16
        first would cost more than all other roundings of a layer together.
    """
    kv_heads, keys, d = k.shape
    folded = q.reshape(kv_heads, -1, q.shape[1], d)
    groups = folded.shape[1]
    out = torch.empty_like(folded)
    block = max(1, MAX_SCORES // (q.shape[0] * keys))
    if narrowed:
        block = min(block, _NARROW_ROWS)
    for start in range(0, q.shape[1], block):
        rows = folded[:, :, start : start + block]
        some_k, some_v, visible = k, v, mask
        if mask is not None:
            visible = mask[start : start + block]
            if narrowed and not bool((seen := visible.any(dim=0)).all()):
                some_k, some_v, visible = k[:, seen], v[:, seen], visible[:, seen]
            visible = visible.repeat(groups, 1)
        y = F.scaled_dot_product_attention(
            rows.flatten(1, 2)[None], some_k[None], some_v[None], attn_mask=visible, scale=1.0
        )
        out[:, :, start : start + block] = y.view(rows.shape)
    return out.view(q.shape)
