"""Experts, router, embedding, rotary positions and self-conditioning, each against its formula."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.nn.functional import gelu, softmax

from localdiff.model.config import RopeConfig
from localdiff.model.formulas import rms_norm, rotary_table, rotate
from quant.modules.embedding import TiedEmbedding
from tests.models import tiny


def test_experts_sum_what_each_row_chose() -> None:
    experts = tiny.model().layers[0].experts
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 32, generator=generator)
    index = torch.tensor([[0, 1], [1, 0], [3, 2], [0, 3], [1, 2]])
    weight = torch.rand(5, 2, generator=generator)
    expected = torch.zeros_like(x)
    for row in range(5):
        for expert, share in zip(index[row], weight[row], strict=True):
            gate, up = (experts.gate_up_proj[expert] @ x[row]).chunk(2)
            expected[row] += share * (experts.down_proj[expert] @ (gelu(gate, approximate="tanh") * up))
    torch.testing.assert_close(experts(x, index, weight), expected, atol=1e-5, rtol=1e-5)


def test_the_router_normalises_the_raw_residual_and_its_choice() -> None:
    layer = tiny.model().layers[0]
    router = layer.router
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)) * 7
    *_, router_in = layer.add_attention(x, torch.zeros_like(x), layer.layer_ops)
    index, weight = router(router_in)
    normed = x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    probs = softmax((normed * router.scale / math.sqrt(32)) @ router.proj.weight.T, dim=-1)
    best, expected = probs.topk(2)
    assert torch.equal(index, expected)
    share = best / best.sum(dim=-1, keepdim=True) * router.per_expert_scale[expected]
    torch.testing.assert_close(weight, share)


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
def test_the_head_in_chunks_equals_the_whole_product(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(TiedEmbedding, "chunk", chunk)
    table = TiedEmbedding(50, 16)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 16, generator=generator)
    table.load_state_dict({"weight": weight})
    hidden = torch.randn(5, 16, generator=generator)
    logits = table.logits(hidden)
    torch.testing.assert_close(logits, hidden @ weight.T)
    soft = table.soft(logits, logits.logsumexp(dim=-1))
    torch.testing.assert_close(soft, logits.softmax(dim=-1) @ weight, atol=1e-5, rtol=1e-5)
    assert torch.equal(table.lookup(torch.tensor([3, 3, 49])), weight[[3, 3, 49]])


def test_rms_norm_computes_in_fp32_and_multiplies_by_the_weight() -> None:
    x = torch.tensor([[300.0, -400.0]], dtype=torch.bfloat16)
    normed = rms_norm(x, torch.tensor([2.0, 0.5]), 0.0)
    assert normed.dtype == torch.bfloat16
    torch.testing.assert_close(normed.float(), torch.tensor([[1.7, -0.565]]), atol=0.01, rtol=0)


def test_proportional_rope_rotates_a_fraction_with_exponents_over_the_whole_head() -> None:
    sliding, _, full = tiny.config().layers
    position = torch.tensor([5])
    cos, _ = rotary_table(position, full, torch.float32)
    angles = [5.0 * (1e6 ** -(2 * i / 16)) if i < 2 else 0.0 for i in range(8)]
    torch.testing.assert_close(cos[0], torch.tensor([math.cos(angle) for angle in angles] * 2))
    cos, _ = rotary_table(position, sliding, torch.float32)
    angles = [5.0 * (1e4 ** -(2 * i / 8)) for i in range(4)]
    torch.testing.assert_close(cos[0], torch.tensor([math.cos(angle) for angle in angles] * 2))


@pytest.mark.parametrize(("fraction", "pairs"), [(0.1, 0), (0.25, 2), (0.3, 2), (0.49, 3), (1.0, 8)])
def test_a_fraction_of_a_head_is_whole_pairs_rounded_down(fraction: float, pairs: int) -> None:
    layer = dataclasses.replace(tiny.config().layers[2], rope=RopeConfig(theta=1e6, rotary_fraction=fraction))
    _, sin = rotary_table(torch.tensor([5]), layer, torch.float32)
    assert sin[0].nonzero().flatten().tolist() == [*range(pairs), *range(8, 8 + pairs)]


def test_rotation_depends_on_distance_alone() -> None:
    layer = tiny.config().layers[0]
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    products = []
    for shift in (0, 11):
        at = [rotary_table(torch.tensor([place + shift]), layer, torch.float32) for place in (9, 4)]
        products.append((rotate(q, at[0]) * rotate(k, at[1])).sum())
    torch.testing.assert_close(products[0], products[1], atol=1e-5, rtol=1e-5)


def test_self_conditioning_normalises_on_the_first_step_too() -> None:
    model = tiny.model()
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0)) * 3
    first = model.self_conditioning.condition(x, None)
    torch.testing.assert_close(first, rms_norm(x, None, 1e-6))
    torch.testing.assert_close(model.self_conditioning.condition(x, torch.zeros_like(x)), first)
    assert not torch.allclose(model.self_conditioning.condition(x, x), first)


def test_embeddings_are_scaled_by_a_root_that_is_rounded_to_their_type() -> None:
    model = tiny.model().bfloat16()
    ids = torch.tensor([7])
    assert torch.equal(model.embed(ids), model.embed_tokens.weight[7:8] * torch.tensor(32**0.5).bfloat16())
