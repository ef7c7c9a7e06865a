"""Tiles that were timed: which products ask for one, and that they take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from localdiff.kernels.attention import AttentionTile, attend_rows
from quant.codecs import CODECS
from quant.cuda import tiles, timed
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.experts import CudaExperts
from quant.cuda.linear import CudaLinear, Weight
from quant.cuda.tiles import ExpertTile, Tile
from quant.cuda.timed import Product, asked_for, tile_of_product, timed_count, use_timed
from quant.dtypes import short_name
from quant.modules import QuantEmbedding, QuantTensor
from tests.gpu.kernels import DEVICE, QUICK, needs_triton
from tests.models.quantized import EXPERTS, IN, INNER, OUT, WIDTH, plain_experts, plain_linear

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

ROWS, TOP_K, VOCABULARY, HEAD = 20, 2, 192, 32
NAME = short_name(QUICK)
PRODUCT = Product(kind="linear", weights="w8a16", dtype="bf16", rows=256, columns=128, inputs=64)


@pytest.fixture(autouse=True)
def no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "_timed", {})


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(DEVICE, QUICK)


def of_experts() -> Callable[[], Tensor]:
    fast = CudaExperts(plain_experts("int8", "int8"))
    ids = torch.arange(ROWS * TOP_K, device=DEVICE).view(ROWS, TOP_K) % EXPERTS
    x, weights = rows(ROWS, WIDTH), torch.full((ROWS, TOP_K), 0.5, device=DEVICE)
    return lambda: fast(x, ids, weights)


def of_linear() -> Callable[[], Tensor]:
    fast, x = CudaLinear(plain_linear("nf4"), "a16"), rows(ROWS, IN)
    return lambda: fast(x)


def of_head() -> Callable[[], Tensor]:
    weight, x = Weight.as_stored(plain_linear("int8").weight, "a16"), rows(ROWS, IN)
    return lambda: weight.times(x)


def of_gate() -> Callable[[], Tensor]:
    weight, x = Weight.of(plain_linear("int8", 2 * OUT).weight, "a16"), rows(ROWS, IN)

    def gated() -> Tensor:
        found = weight.gated(x)
        assert found is not None
        return found

    return gated


def of_soft() -> Callable[[], Tensor]:
    with torch.device("meta"):
        plain = QuantEmbedding(CODECS["int8"], VOCABULARY, WIDTH, QUICK)
    plain.weight = QuantTensor.of(CODECS["int8"], rows(VOCABULARY, WIDTH).float())
    fast, probs = CudaEmbedding(plain), rows(ROWS, VOCABULARY).float().softmax(dim=-1).to(QUICK)
    return lambda: fast.mean(probs)


def of_attention() -> Callable[[], Tensor]:
    q, k, v, keys, values = (rows(2, count, HEAD) for count in (ROWS, ROWS, ROWS, 40, 40))
    length = torch.full((), 30, dtype=torch.int32, device=DEVICE)
    return lambda: attend_rows(q, k, v, keys=keys, values=values, length=length, commit_rows=4, window=16)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    make: Callable[[], Callable[[], Tensor]]
    product: Product
    other: Any


def product(kind: timed.Kind, weights: str, count: int, columns: int, inputs: int) -> Product:
    return Product(kind=kind, weights=weights, dtype=NAME, rows=count, columns=columns, inputs=inputs)


CASES = [
    Case(
        make=of_experts,
        product=product("experts", "w8a16", ROWS * TOP_K, WIDTH, INNER),
        other=ExpertTile(16, 16, down_columns=64, warps=8, side_by_side=True),
    ),
    Case(make=of_linear, product=product("linear", "w4a16", ROWS, OUT, IN), other=Tile(16, 64, 4, stages=2)),
    Case(make=of_head, product=product("head", "w8a16", ROWS, OUT, IN), other=Tile(16, 64, 4, stages=2)),
    Case(make=of_gate, product=product("gated", "w8a16", ROWS, OUT, IN), other=Tile(16, 64, 4, stages=4)),
    Case(make=of_soft, product=product("soft", "w8a16", ROWS, WIDTH, VOCABULARY), other=Tile(32, 64, 4)),
    Case(
        make=of_attention,
        product=product("attention", "", ROWS, HEAD, 16),
        other=AttentionTile(16, 32, 4, splits=2),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.product.kind)
def test_a_product_takes_the_tile_that_was_timed_for_it(case: Case) -> None:
    run = case.make()
    with asked_for() as asked:
        expected = run()
    assert list(asked) == [case.product] and asked[case.product] != case.other
    use_timed(DEVICE, {case.product: case.other})
    torch.testing.assert_close(run(), expected, atol=3e-2, rtol=3e-2)
    assert timed_count(DEVICE) == 1
    taken: list[object] = []

    class Seen(type(case.other)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> object:
            taken.append(name)
            return super().__getattribute__(name)

    fields = {name: getattr(case.other, name) for name in type(case.other).__dataclass_fields__}
    use_timed(DEVICE, {case.product: Seen(**fields)})
    run()
    assert {"warps", "stages"} <= set(taken), "a kernel was launched with it"


def test_parts_of_k_are_those_of_the_tile() -> None:
    fast, x = CudaLinear(plain_linear("int8"), "a16"), rows(ROWS, IN)
    expected = fast(x)
    assert fast(x, in_parts=True).dim() == 2, "here the table wants none"
    of = product("linear", "w8a16", ROWS, OUT, IN)
    use_timed(DEVICE, {of: Tile(32, 64, 4, parts=2)})
    found = fast(x, in_parts=True)
    assert found.shape == (2, ROWS, OUT)
    torch.testing.assert_close(found.sum(dim=0).to(QUICK), expected, atol=3e-2, rtol=3e-2)
    use_timed(DEVICE, {of: Tile(32, 64, 4, parts=1)})
    assert fast(x, in_parts=True).dim() == 2


def test_products_whose_parts_are_summed_are_told_from_others() -> None:
    fast, x = CudaLinear(plain_linear("int8"), "a16"), rows(ROWS, IN)
    of = product("linear", "w8a16", ROWS, OUT, IN)
    with asked_for() as whole:
        fast(x)
    with asked_for() as in_parts:
        fast(x, in_parts=True)
    assert {*whole} == {*in_parts} == {of}
    assert not whole.summed and in_parts.summed == {of}


def test_other_products_and_other_devices_keep_their_usual_tile() -> None:
    usual, other = Tile(16, 64, 4), Tile(32, 64, 4)
    use_timed(DEVICE, {PRODUCT: other})
    assert tile_of_product(PRODUCT, DEVICE, usual) is other
    assert tile_of_product(PRODUCT, torch.device("cuda", 7), usual) is usual
    for field, value in (("rows", 512), ("weights", "w8a8"), ("dtype", "fp32"), ("columns", 64), ("kind", "gated")):
        fields: dict[str, Any] = {name: getattr(PRODUCT, name) for name in Product.__dataclass_fields__}
        assert tile_of_product(Product(**{**fields, field: value}), DEVICE, usual) is usual
    use_timed(DEVICE, {})
    assert tile_of_product(PRODUCT, DEVICE, usual) is usual and timed_count(DEVICE) == 0


def test_a_card_without_an_index_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    use_timed(torch.device("cuda"), {PRODUCT: Tile(32, 64, 4)})
    assert tile_of_product(PRODUCT, torch.device("cuda", 1), Tile(16, 64, 4)).rows == 32
    assert timed_count(torch.device("cuda", 1)) == timed_count(torch.device("cuda")) == 1


def test_what_is_asked_for_is_noted_while_somebody_listens_and_no_longer() -> None:
    usual = Tile(16, 64, 4)
    use_timed(DEVICE, {PRODUCT: Tile(32, 64, 4)})
    with asked_for() as outer:
        with asked_for() as inner:
            tile_of_product(PRODUCT, DEVICE, usual)
        assert inner == {PRODUCT: usual}, "the usual tile, whatever was timed"
    assert outer == inner
    tile_of_product(PRODUCT, DEVICE, Tile(64, 64, 4))
    assert outer == {PRODUCT: usual}


@pytest.mark.parametrize(("has_table", "weights"), [(True, "w4a16"), (False, "w4a16, no table")])
def test_experts_that_a_switch_leaves_without_a_table_are_another_product(
    has_table: bool, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = replace(tiles.EXPERTS[tiles.mma_kind(DEVICE)]["a16"], byte_table=True)
    monkeypatch.setitem(tiles.EXPERTS[tiles.mma_kind(DEVICE)], "a16", usual)
    fast = CudaExperts(plain_experts("nf4", "nf4"), byte_table=has_table)
    with asked_for() as asked:
        fast.block_rows(torch.zeros(1, WIDTH, device=DEVICE), ROWS)
    assert {product.weights for product in asked} == {weights}
