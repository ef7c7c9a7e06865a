"""What lies between a layer's products, through Triton against the plain way: in the interpreter, or on a card."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from localdiff.model.attention import Attention
from localdiff.model.block import Layer
from localdiff.model.formulas import rotary_table
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import PLAIN, UsesLayerOps, set_layer_ops
from quant.cuda import choice, tiles
from quant.cuda.experts import CudaExperts
from quant.cuda.linear import Weight
from quant.modules.linear import Linear
from tests.gpu.kernels import DEVICE, HALVES, HAS_CARD, assert_rounded_alike, needs_triton
from tests.localdiff.bench.step.small import small_subject
from tests.models import tiny

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

FUSED = FusedLayerOps()
SIZES = [{}, {"hidden_size": 40, "head_dim": 24, "global_head_dim": 40, "num_experts": 5}]
DTYPES = HALVES if HAS_CARD else [torch.float32, *HALVES]
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
ROWS = 7


def of_heads(attention: Attention, rotary: tuple[Tensor, Tensor]) -> tuple[Any, ...]:
    """The arguments of `qkv_norm_rope` after queries, keys and values."""
    return attention.q_norm.weight, attention.k_norm.weight, rotary, attention.eps


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


@pytest.fixture(params=SIZES, ids=["powers of two", "other sizes"])
def layers(request: pytest.FixtureRequest, dtype: torch.dtype) -> tuple[Layer, Layer]:
    """A sliding layer, which projects its values, and a full one, which does not."""
    network = tiny.model(**request.param).to(DEVICE, dtype)
    return network.layers[0], network.layers[2]


def rows(*shape: int, dtype: torch.dtype, seed: int = 0, scale: float = 3.0) -> Tensor:
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype).to(DEVICE)


def assert_close(found: Any, expected: Any) -> None:
    """In 16-bit types an operation may round to the other side, but only for few numbers."""
    for ours, theirs in zip(found, expected, strict=True):
        assert_rounded_alike(ours, theirs)
        tolerance = TOLERANCE[theirs.dtype]
        torch.testing.assert_close(ours, theirs, atol=tolerance * 10, rtol=tolerance)


def test_norms(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    weight = layers[0].input_layernorm.weight
    x = rows(2, ROWS, len(weight), dtype=dtype)
    x[0, 0] = 0.0
    x[0, 1] *= 1e-4
    assert_close([FUSED.norm(x, weight, 1e-6)], [PLAIN.norm(x, weight, 1e-6)])


def test_qkv_norm_rope(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    config = tiny.config()
    for layer, kind in zip(layers, (config.layers[0], config.layers[2]), strict=True):
        attention = layer.self_attn
        size = len(attention.q_norm.weight)
        kv_heads = attention.k_proj.weight.shape[0] // size
        q, k, v = (
            rows(ROWS, count, size, dtype=dtype, seed=seed)
            for seed, count in ((1, config.num_heads), (2, kv_heads), (3, kv_heads))
        )
        values = None if attention.v_proj is None else v
        angles = rows(ROWS, size // 2, dtype=torch.float32, seed=4)
        angles = torch.cat((angles, angles), dim=-1)
        table = angles.cos().to(dtype), angles.sin().to(dtype)
        others = of_heads(attention, table)
        assert_close(FUSED.qkv_norm_rope(q, k, values, *others), PLAIN.qkv_norm_rope(q, k, values, *others))
        positions = torch.arange(100, 100 + ROWS, device=DEVICE)
        if size == kind.head_dim:
            others = of_heads(attention, rotary_table(positions, kind, dtype))
            assert_close(FUSED.qkv_norm_rope(q, k, values, *others), PLAIN.qkv_norm_rope(q, k, values, *others))


def test_queries_keys_and_values_may_be_parts_of_one_product(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    """Rows then have gaps between them, which the plain way does not see either."""
    config = tiny.config()
    attention = layers[0].self_attn
    size = len(attention.q_norm.weight)
    counts = [config.num_heads, *2 * [attention.k_proj.weight.shape[0] // size]]
    whole = rows(ROWS, sum(counts) * size, dtype=dtype)
    q, k, v = (part.view(ROWS, -1, size) for part in whole.split([count * size for count in counts], dim=-1))
    table = rows(ROWS, size, dtype=dtype, seed=4), rows(ROWS, size, dtype=dtype, seed=5)
    others = of_heads(attention, table)
    found = FUSED.qkv_norm_rope(q, k, v, *others)
    assert_close(found, PLAIN.qkv_norm_rope(q, k, v, *others))
    assert all(made.is_contiguous() for made in found)
    own = [part.contiguous() for part in (q, k, v)]
    for apart in (own, (own[0], k, v), (q, own[1], v), (q, k, own[2])):
        again = FUSED.qkv_norm_rope(*apart, *others)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, again, strict=True))


def test_numbers_may_have_gaps_between_them(layers: tuple[Layer, Layer]) -> None:
    """The computation uses what a view shows."""
    layer, dtype = layers[0], layers[0].input_layernorm.weight.dtype
    width, experts = len(layer.input_layernorm.weight), len(layer.router.per_expert_scale)
    together = [rows(ROWS, width, dtype=dtype, seed=seed) for seed in (1, 2, 3)]
    expert_out, routing_weights = rows(ROWS, 2, width, dtype=dtype), rows(ROWS, 2, dtype=torch.float32)
    scores, is_canvas = rows(ROWS, experts, dtype=dtype), torch.arange(ROWS, device=DEVICE) >= 3

    def made(
        x: Tensor, y: Tensor, z: Tensor, expert_out: Tensor, routing_weights: Tensor, scores: Tensor
    ) -> list[Tensor]:
        return [
            FUSED.norm(x, layer.input_layernorm.weight, 1e-6),
            *layer.add_attention(x, y, FUSED),
            FUSED.gelu_mul(x, y),
            *FUSED.route(scores, layer.router.per_expert_scale, layer.router.top_k),
            layer.merge_branches(x, y, z, None, is_canvas, FUSED),
            layer.merge_branches(x, y, expert_out, routing_weights, is_canvas, FUSED),
        ]

    expected = made(*together, expert_out, routing_weights, scores)
    parts = (torch.stack((part, part + 1), dim=-1)[..., 0] for part in (*together, expert_out, routing_weights, scores))
    for found, right in zip(made(*parts), expected, strict=True):
        assert torch.equal(found, right)


def test_add_attention_and_norm(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    layer = layers[0]
    width = len(layer.input_layernorm.weight)
    x, y = (rows(ROWS, width, dtype=dtype, seed=seed) for seed in (1, 2))
    assert_close(layer.add_attention(x, y, FUSED), layer.add_attention(x, y, PLAIN))


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_sum_are_summed_in_their_order_and_rounded(
    layers: tuple[Layer, Layer], dtype: torch.dtype, parts: int
) -> None:
    """For attention's output before it is added, and the dense MLP's when branches are merged."""
    layer = layers[0]
    width = len(layer.input_layernorm.weight)
    x, expert_out = rows(ROWS, width, dtype=dtype), rows(ROWS, width, dtype=dtype, seed=1)
    of_sum = rows(parts, ROWS, width, dtype=torch.float32, seed=2)
    whole = of_sum[0].clone()
    for part in of_sum[1:]:
        whole += part
    rounded = whole.to(dtype)
    added = layer.add_attention(x, of_sum, FUSED), layer.add_attention(x, rounded, FUSED)
    for ours, theirs in zip(*added, strict=True):
        assert torch.equal(ours, theirs)
    is_canvas = torch.arange(ROWS, device=DEVICE) >= 3
    found = layer.merge_branches(x, of_sum, expert_out, None, is_canvas, FUSED)
    assert torch.equal(found, layer.merge_branches(x, rounded, expert_out, None, is_canvas, FUSED))


def test_gelu_mul(dtype: torch.dtype) -> None:
    gate, up = (rows(ROWS, 1100, dtype=dtype, seed=seed) for seed in (1, 2))
    gate[0, :5] = torch.tensor([0.0, 30.0, -30.0, 1e-3, -1e-3])
    expected = PLAIN.gelu_mul(gate, up)
    assert_close([FUSED.gelu_mul(gate, up)], [expected])
    assert_close([FUSED.gelu_mul(gate[None], up[None])], [expected[None]])
    halves = torch.cat((gate, up), dim=-1).split(1100, dim=-1)  # of one product
    for parts in (halves, (halves[0], up), (gate, halves[1])):
        assert_close([FUSED.gelu_mul(*parts)], [expected])


def test_route(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    router = layers[0].router
    experts = len(router.per_expert_scale)
    scores = rows(50, experts, dtype=dtype)
    scores += torch.arange(experts, device=DEVICE).to(dtype) / 64  # no two are equal
    expert_ids, weights = FUSED.route(scores, router.per_expert_scale, router.top_k)
    expected, routing_weights = PLAIN.route(scores, router.per_expert_scale, router.top_k)
    distinct = scores.sort(dim=-1).values.diff(dim=-1).min(dim=-1).values > 0
    assert distinct.sum() > 25
    assert torch.equal(expert_ids[distinct], expected[distinct])
    torch.testing.assert_close(weights[distinct], routing_weights[distinct].float(), atol=1e-6, rtol=1e-5)


def test_a_router_leaves_parts_of_scores_where_its_weight_divides(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    router, x = Linear(512, 64).to(DEVICE, dtype), rows(9, 512, dtype=dtype)
    parts, expected = FUSED.scores(router, x), router(x)
    assert parts.shape == (2, *expected.shape) and parts.dtype == torch.float32
    assert_close([parts.sum(dim=0).to(dtype)], [expected])
    for other in (nn.Sequential(router), Linear(512, 8).to(DEVICE, dtype)):
        assert torch.equal(FUSED.scores(other, x), other(x)), "an adapted router, or one of few experts"


def test_parts_of_scores_are_summed_and_rounded_once(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    router = layers[0].router
    experts = len(router.per_expert_scale)
    parts = torch.stack([rows(50, experts, dtype=torch.float32, seed=seed) for seed in range(3)])
    found = FUSED.route(parts, router.per_expert_scale, router.top_k)
    one_by_one = (parts[0] + parts[1] + parts[2]).to(dtype)
    for ours, right in zip(found, FUSED.route(one_by_one, router.per_expert_scale, router.top_k), strict=True):
        assert torch.equal(ours, right)


def test_of_experts_with_the_same_score_the_first_is_chosen(layers: tuple[Layer, Layer]) -> None:
    router = layers[0].router
    scores = torch.zeros(2, len(router.per_expert_scale), device=DEVICE)
    scores[1, 3] = torch.nan
    expert_ids, weights = FUSED.route(scores, router.per_expert_scale, router.top_k)
    assert expert_ids[0].tolist() == [0, 1]
    torch.testing.assert_close(weights[0], router.per_expert_scale[:2].float() / 2)
    assert expert_ids.min() >= 0 and expert_ids.max() < scores.shape[1], "of scores that are no numbers too"


def test_merge_branches(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    layer = layers[0]
    width = len(layer.input_layernorm.weight)
    x, dense, expert_out = (rows(ROWS, width, dtype=dtype, seed=seed) for seed in (1, 2, 3))
    is_canvas = torch.arange(ROWS, device=DEVICE) >= 3
    found = layer.merge_branches(x, dense, expert_out, None, is_canvas, FUSED)
    assert_close([found], [layer.merge_branches(x, dense, expert_out, None, is_canvas, PLAIN)])
    other = layer.merge_branches(x, dense, expert_out, None, ~is_canvas, PLAIN)
    assert (found - other).abs().max() > 0.1, "the scalars differ"


@pytest.mark.parametrize("slots", [1, 3])
def test_merge_branches_sums_the_experts_of_a_row(layers: tuple[Layer, Layer], dtype: torch.dtype, slots: int) -> None:
    layer = layers[0]
    width = len(layer.input_layernorm.weight)
    x, dense = (rows(ROWS, width, dtype=dtype, seed=seed) for seed in (1, 2))
    expert_out = rows(ROWS, slots, width, dtype=dtype, seed=3)
    routing_weights = rows(ROWS, slots, dtype=torch.float32, seed=4).abs()
    is_canvas = torch.arange(ROWS, device=DEVICE) >= 3
    found = layer.merge_branches(x, dense, expert_out, routing_weights, is_canvas, FUSED)
    assert_close([found], [layer.merge_branches(x, dense, expert_out, routing_weights, is_canvas, PLAIN)])
    summed = (expert_out.float() * routing_weights[..., None]).sum(dim=1).to(dtype)
    assert_close([found], [layer.merge_branches(x, dense, summed, None, is_canvas, PLAIN)])


def test_grouped_experts_leave_their_sum_to_merge_branches() -> None:
    """The outputs of other experts are summed as before."""
    layer = small_subject("4bit").network.to(DEVICE).layers[0]
    x = rows(9, 64, dtype=torch.float32)
    is_canvas = torch.ones(9, dtype=torch.bool, device=DEVICE)
    routed = layer.router(x)
    set_layer_ops(layer, FUSED)
    expected, no_weights = layer._experts(x, *routed)
    assert no_weights is None
    layer.experts = CudaExperts(layer.get_submodule("experts"))
    outputs, weights = layer._experts(x, *routed)
    assert outputs.shape == (9, 2, 64) and weights is routed[1]
    found = layer.merge_branches(x, x, outputs, weights, is_canvas, FUSED)
    plain = layer.merge_branches(x, x, expected, None, is_canvas, PLAIN)
    torch.testing.assert_close(found, plain, atol=1e-4, rtol=1e-4)
    set_layer_ops(layer, PLAIN)
    summed, no_weights = layer._experts(x, *routed)
    assert no_weights is None
    torch.testing.assert_close(summed, expected, atol=1e-4, rtol=1e-4)


def test_no_rows_are_no_launch(layers: tuple[Layer, Layer], dtype: torch.dtype) -> None:
    layer = layers[0]
    none = rows(0, len(layer.input_layernorm.weight), dtype=dtype)
    is_canvas = torch.zeros(0, dtype=torch.bool, device=DEVICE)
    assert layer.merge_branches(none, none, none, None, is_canvas, FUSED).shape == none.shape
    assert all(output.shape == none.shape for output in layer.add_attention(none, none, FUSED))
    scale = layer.router.per_expert_scale
    assert FUSED.route(none[:, : len(scale)], scale, 2)[0].shape == (0, 2)


def test_layers_leave_sums_in_parts_to_the_ops_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output projection of attention and the down projection of the dense MLP, if ops can sum parts."""
    network = small_subject("4bit").network.to(DEVICE)
    layer, config = network.layers[0], network.config.layers[0]
    x, positions = rows(ROWS, network.config.hidden_size, dtype=torch.float32), torch.arange(ROWS, device=DEVICE)
    arguments = positions >= 2, rotary_table(positions, config, x.dtype), attend_to_all
    expected = layer(x, *arguments)
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    choice.use_cuda_modules(layer, DEVICE)
    taken = []
    parts = Weight.parts

    def noted(weight: Weight, rows: Tensor) -> Tensor | None:
        taken.append(parts(weight, rows))
        return taken[-1]

    monkeypatch.setattr(tiles, "parts_of", lambda *_: 1 + bool(taken))
    monkeypatch.setattr(Weight, "parts", noted)
    set_layer_ops(layer, FUSED)
    torch.testing.assert_close(layer(x, *arguments), expected, atol=1e-4, rtol=1e-4)
    assert taken[0] is None, "attention's: one part is the product"
    assert taken[1] is not None and taken[1].shape == (2, *x.shape)
    set_layer_ops(layer, PLAIN)
    torch.testing.assert_close(layer(x, *arguments), expected, atol=1e-4, rtol=1e-4)
    assert len(taken) == 2, "the plain ops take sums"


def attend_to_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=1.0)


def test_whole_layers() -> None:
    network = tiny.model().to(DEVICE)
    parts = [module for module in network.modules() if isinstance(module, UsesLayerOps)]
    assert len(parts) > 3 * 12
    x = rows(ROWS, 32, dtype=torch.float32)
    positions = torch.arange(ROWS, device=DEVICE)
    is_canvas = positions >= 2
    answers = []
    for layer_ops in (PLAIN, FUSED):
        set_layer_ops(network, layer_ops)
        assert all(part.layer_ops is layer_ops for part in parts)
        y = x
        for layer, config in zip(network.layers, network.config.layers, strict=True):
            y = layer(y, is_canvas, rotary_table(positions, config, y.dtype), attend_to_all)
        answers.append(y)
    torch.testing.assert_close(answers[1], answers[0], atol=1e-4, rtol=1e-4)
