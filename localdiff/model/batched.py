"""The forward pass of a batch of whole sequences, without a KV cache, as training needs it.

Runs the same layers as generation; only the visibility of rows comes from a mask instead of a cache.
Shape letters: B batch, P longest encoder part, L canvas, D width, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from localdiff.model.attention import Attend, training_mask
from localdiff.model.diffusion_gemma import DiffusionGemma


def batched_logits(
    model: DiffusionGemma, encoder_ids: Tensor, encoder_rows: Tensor, canvas_ids: Tensor, soft: Tensor | None
) -> Tensor:
    """Soft-capped canvas logits [B, L, V] of `[encoder rows | canvas rows]`.

    Args:
        encoder_ids: [B, P] prompt and committed blocks, padded on the right.
        encoder_rows: [B] real length of each encoder part.
        canvas_ids: [B, L] noisy canvas; its positions continue each sequence's own encoder part.
        soft: [B, L, D] soft embedding of an earlier pass, or None.
    """
    longest, length = encoder_ids.shape[1], canvas_ids.shape[1]
    canvas = model.self_conditioning.condition(model.embed(canvas_ids), soft)
    x = torch.cat((model.embed(encoder_ids), canvas), dim=1)
    row = torch.arange(longest + length, device=x.device)
    is_canvas = row >= longest
    positions = torch.where(is_canvas, row - longest + encoder_rows[:, None], row)
    rotary = model.rotary_tables(positions, x.dtype)
    masks = {
        layer: training_mask(encoder_rows, longest, length, layer.window)
        for layer in dict.fromkeys(model.config.layers)
    }
    for layer, config in zip(model.layers, model.config.layers, strict=True):
        x = layer(x, is_canvas, rotary[config], _attend(masks[config]))
    logits = F.linear(model.norm(x[:, longest:]), model.embed_tokens.weight)
    softcap = model.config.softcap
    if softcap is None:
        return logits
    return torch.tanh(logits / softcap) * softcap


def batched_soft_embedding(model: DiffusionGemma, logits: Tensor) -> Tensor:
    """Scaled soft embedding [B, L, D] of capped, temperature-scaled logits [B, L, V]."""
    return model.scale(logits.softmax(dim=-1) @ model.embed_tokens.weight)


def _attend(mask: Tensor) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0, enable_gqa=True)

    return attend
