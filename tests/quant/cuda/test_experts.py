"""The experts of a card against the plain ones, and their parts: layout, rows in int8."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import nn

from quant import instructions
from quant.codecs import CODECS
from quant.codecs.nf4 import LEVELS
from quant.cuda import experts as experts_module
from quant.cuda import tiles
from quant.cuda.experts import CudaExperts, can_group
from quant.cuda.layout import Tiled, tiled
from quant.cuda.rows import quantize_groups
from quant.cuda.tiles import Activations
from tests.gpu.kernels import DEVICE, EMULATED, HALVES, QUICK, assert_rounded_alike, needs_triton
from tests.gpu.ptx.memory import Array, GlobalMemory
from tests.gpu.ptx.races import Clock
from tests.models.quantized import EXPERTS, INNER, WIDTH, plain_experts

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

TOP_K = 2
HAS_BYTE_TABLE = tiles.EXPERTS[tiles.mma_kind(DEVICE)]["a16"].byte_table
TOLERANCE = {
    torch.float32: {"atol": 2e-6, "rtol": 2e-5},
    torch.float16: {"atol": 3e-3, "rtol": 3e-3},
    torch.bfloat16: {"atol": 2.4e-2, "rtol": 2.4e-2},
}


def routed(rows: int, dtype: torch.dtype, width: int = WIDTH) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows that go to two different experts each; the fourth expert gets no rows."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, width, generator=generator).to(dtype)
    scores = torch.rand(rows, EXPERTS, generator=generator)
    scores[:, 3] = -1
    weight, index = scores.topk(TOP_K, dim=-1)
    return x.to(DEVICE), index.to(DEVICE), weight.to(DEVICE)


def change_tile(monkeypatch: pytest.MonkeyPatch, activations: Activations, **fields: Any) -> None:
    """Has the experts here computed with another tile than the table's."""
    of_kind = tiles.EXPERTS[tiles.mma_kind(DEVICE)]
    monkeypatch.setitem(of_kind, activations, replace(of_kind[activations], **fields))


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize(("gate_up", "down"), [("nf4", "nf4"), ("int8", "int8"), ("nf4", "int8")])
def test_with_activations_as_they_are_it_is_the_same_product(
    gate_up: str, down: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU. A CPU without 16-bit instructions multiplies weights that were not rounded to 16 bits.
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: True)
    x, index, weight = routed(21, dtype)
    plain = plain_experts(gate_up, down)
    expected = plain(x, index, weight)
    fast = CudaExperts(plain, byte_table=False)
    assert not plain.gate_up_proj.codes.numel(), "the weights are held once"
    found = fast(x, index, weight)
    torch.testing.assert_close(found, expected, **TOLERANCE[dtype])
    assert_rounded_alike(found, expected)
    assert torch.equal(fast(x, index, weight), found), "the same bits every time"


class Published(nn.Module):
    """Fused experts whose tensors are parameters, as a checkpoint has them."""

    def __init__(self, dtype: torch.dtype, *, width: int = WIDTH, inner: int = INNER) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(6)
        for name, rows, columns in (("gate_up_proj", 2 * inner, width), ("down_proj", width, inner)):
            weight = torch.randn(EXPERTS, rows, columns, generator=generator) / columns**0.5
            setattr(self, name, nn.Parameter(weight.to(dtype).to(DEVICE), requires_grad=False))

    def forward(self, x: torch.Tensor, index: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """One pair after the other."""
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for row, slot in product(range(len(x)), range(index.shape[1])):
            expert = index[row, slot]
            gate, up = (self.gate_up_proj[expert] @ x[row]).chunk(2)
            inner = nn.functional.gelu(gate, approximate="tanh") * up
            out[row] += weight[row, slot] * (self.down_proj[expert] @ inner).float()
        return out.to(x.dtype)


@pytest.mark.parametrize("rows", [1, 21, 70])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_experts_as_published_are_multiplied_as_they_are(dtype: torch.dtype, rows: int) -> None:
    x, index, weight = routed(rows, dtype)
    plain = Published(dtype)
    expected = plain(x, index, weight)
    fast = CudaExperts(plain, "a8")
    name = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    assert fast.path == f"{name}, grouped, Triton"
    found = fast(x, index, weight)
    torch.testing.assert_close(found, expected, **TOLERANCE[dtype])
    assert_rounded_alike(found, expected)
    assert torch.equal(fast(x, index, weight), found), "the same bits every time"


@pytest.mark.skipif(not HAS_BYTE_TABLE, reason="only a program of `wgmma` has room for a table of bytes")
@pytest.mark.parametrize(("width", "inner"), [(128, 64), (256, 64), (384, 128)])
@pytest.mark.parametrize("rows", [5, 40])
@pytest.mark.parametrize("by_warp", [False, True])
def test_weights_from_a_table_of_bytes_are_rounded_twice(
    by_warp: bool, rows: int, width: int, inner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First levels, then their products with scales; a program of the down projection has one tile, or two."""
    change_tile(monkeypatch, "a16", by_warp=by_warp)
    x, index, weight = routed(rows, torch.bfloat16, width)
    plain = plain_experts(width=width, inner=inner)
    rounded = Published(torch.bfloat16, width=width, inner=inner)
    levels = torch.tensor(LEVELS, dtype=torch.bfloat16, device=DEVICE)
    for name, parameter in rounded.named_parameters():
        stored = getattr(plain, name)
        of_bytes = torch.stack((levels[stored.codes.int() >> 4], levels[stored.codes.int() & 15]), dim=-1)
        parameter.copy_((of_bytes.view(*stored.scales.shape, 64) * stored.scales[..., None]).flatten(-2))
    once, expected = plain(x, index, weight), rounded(x, index, weight)
    fast = CudaExperts(plain)
    found = fast(x, index, weight)
    torch.testing.assert_close(found, expected, **TOLERANCE[torch.bfloat16])
    torch.testing.assert_close(found, once, **TOLERANCE[torch.bfloat16])
    assert_rounded_alike(found, expected)
    assert torch.equal(fast(x, index, weight), found), "the same bits every time"


@pytest.mark.parametrize("codec", ["nf4", "int8", None])
@pytest.mark.parametrize("activations", ["a16", "a8"])
def test_the_order_of_programs_changes_nothing(
    codec: str | None, activations: Activations, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"width": 256, "inner": 192}
    x, index, weight = routed(21, QUICK, sizes["width"])
    fast = CudaExperts(plain_experts(codec, codec, **sizes) if codec else Published(QUICK, **sizes), activations)
    expected = fast(x, index, weight)
    change_tile(monkeypatch, fast.activations, side_by_side=True)
    assert torch.equal(fast(x, index, weight), expected)


@pytest.mark.skipif(not HAS_BYTE_TABLE, reason="only of nf4 in the order of lanes is anything fetched ahead")
@pytest.mark.parametrize(
    ("fetched", "besides"), [(1, {}), (2, {"by_warp": True}), (9, {"by_warp": True, "side_by_side": True})]
)
@pytest.mark.parametrize(("width", "inner"), [(384, 128), (256, 192)])
def test_what_is_fetched_ahead_changes_nothing(
    fetched: int, besides: dict[str, bool], width: int, inner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some groups, a whole tile and the next one's, or more than exist; nothing is fetched that is not loaded."""
    x, index, weight = routed(21, torch.bfloat16, width)
    fast = CudaExperts(plain_experts(width=width, inner=inner))
    change_tile(monkeypatch, "a16", **besides)
    expected = fast(x, index, weight)
    change_tile(monkeypatch, "a16", fetched=fetched)
    asked_for, loaded, check, load = set(), set(), GlobalMemory.check, GlobalMemory.load

    def noted_check(memory: GlobalMemory, addresses: Array) -> None:
        asked_for.update((addresses // 32).tolist())
        check(memory, addresses)

    def noted_load(memory: GlobalMemory, clock: Clock, lanes: Array, addresses: Array, *size: int) -> Array:
        loaded.update((addresses // 32).tolist())
        return load(memory, clock, lanes, addresses, *size)

    monkeypatch.setattr(GlobalMemory, "check", noted_check)
    monkeypatch.setattr(GlobalMemory, "load", noted_load)
    assert torch.equal(fast(x, index, weight), expected)
    if EMULATED:
        assert asked_for and asked_for <= loaded


@pytest.mark.parametrize("codec", ["nf4", "int8", None])
@pytest.mark.parametrize("activations", ["a16", "a8"])
@pytest.mark.parametrize(("width", "inner"), [(192, 128), (256, 192)])
def test_width_and_inner_width_of_several_groups(
    codec: str | None, activations: Activations, width: int, inner: int
) -> None:
    """No number of groups or columns of either product equals another; a width is cut by 64 or 128."""
    sizes = {"width": width, "inner": inner}
    x, index, weight = routed(5, torch.float32, sizes["width"])
    plain = plain_experts(codec, codec, **sizes) if codec else Published(torch.float32, **sizes)
    expected = plain(x, index, weight)
    found = CudaExperts(plain, activations)(x, index, weight)
    if codec and activations == "a8":
        assert 1e-4 < (found - expected).norm() / expected.norm() < 0.02
    else:
        torch.testing.assert_close(found, expected, atol=3e-6, rtol=2e-5)


@pytest.mark.parametrize("width", [64, 1024, 1088])
def test_the_sum_of_what_a_row_chose(width: int) -> None:
    outputs = torch.randn(3, TOP_K, width, generator=torch.Generator().manual_seed(7)).half().to(DEVICE)
    weight = torch.rand(3, TOP_K, generator=torch.Generator().manual_seed(8)).to(DEVICE)
    expected = (outputs.float() * weight[..., None]).sum(dim=1).half()
    found = experts_module._summed(outputs, weight)
    torch.testing.assert_close(found, expected, atol=3e-3, rtol=3e-3)
    assert_rounded_alike(found, expected)


def test_which_experts_divide_into_programs() -> None:
    assert can_group(plain_experts()) and can_group(Published(torch.float16))
    assert not can_group(Published(torch.float16, inner=48))
    assert not can_group(nn.Linear(4, 4))
    turned = Published(torch.float16)
    turned.down_proj = nn.Parameter(turned.down_proj.detach().mT.contiguous().mT)
    assert not can_group(turned), "kernels read rows that are contiguous"
    for name, shape in (("gate_up_proj", (128, 128)), ("down_proj", (5, 96, 64)), ("down_proj", (5, 128, 32))):
        published = Published(torch.float16)
        setattr(published, name, nn.Parameter(torch.zeros(shape)))
        assert not can_group(published), (name, shape)


@pytest.mark.parametrize("rows", [0, 1, 70])
def test_any_number_of_rows(rows: int) -> None:
    """With one row most experts get none; with 70 each gets more than one block."""
    x, index, weight = routed(rows, torch.float32)
    plain = plain_experts()
    expected = plain(x, index, weight)
    torch.testing.assert_close(CudaExperts(plain)(x, index, weight), expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("most", [TOP_K, 7, 12])
def test_more_pairs_than_are_routed_at_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, index, weight = routed(11, torch.float32)
    fast = CudaExperts(plain_experts())
    expected = fast(x, index, weight)
    monkeypatch.setattr("quant.cuda.experts.MAX_PAIRS", most)
    torch.testing.assert_close(fast(x, index, weight), expected, atol=1e-6, rtol=1e-5)


def test_rows_and_what_they_chose_may_have_gaps_between_them() -> None:
    x, index, weight = routed(21, torch.float32)
    wide, wide_index, wide_weight = (torch.cat((part, part.flip(-1)), dim=-1) for part in (x, index, weight))
    for activations in get_args(Activations):
        fast = CudaExperts(plain_experts(), activations)
        found = fast(wide[:, :WIDTH], wide_index[:, :TOP_K], wide_weight[:, :TOP_K])
        assert torch.equal(found, fast(x, index, weight))


def blocks_of(chosen: list[int], *, experts: int, most: int, blocks: int) -> list[tuple[int, list[int]]]:
    """The blocks that pairs with these experts are cut into: each block's expert and its pairs."""
    from quant.cuda.expert_kernels import sort_pairs_kernel
    from quant.cuda.launch_arguments import power_of_two

    index = torch.tensor(chosen, device=DEVICE)
    sizes = [len(chosen), blocks, blocks, blocks]
    rooms = [torch.full((size + 64,), -7, dtype=torch.int32, device=DEVICE) for size in sizes]
    sort_pairs_kernel[(experts,)](
        index,
        *rooms,
        len(chosen),
        experts,
        blocks,
        ROWS=most,
        PAIRS=power_of_two(len(chosen)),
        BINS=power_of_two(experts + 1),
        BLOCKS=power_of_two(blocks),
    )
    assert all((room[size:] == -7).all() for room, size in zip(rooms, sizes, strict=True)), "written beyond their ends"
    order, *of_blocks = (room[:size].tolist() for room, size in zip(rooms, sizes, strict=True))
    return [
        (expert, order[start : start + count]) for expert, start, count in zip(*of_blocks, strict=True) if expert != -1
    ]


@pytest.mark.parametrize(
    "counts",
    [
        (0, 0, 1, 0, 0),
        (0, 9, 0, 0, 0),
        (4, 4, 0, 8, 4),
        (5, 1, 1, 1, 1),
        (5, 5, 5, 5, 5),
        (1, 1, 0, 1, 0),
        (0, 0, 0, 0, 16),
        (3, 0, 12, 7, 0),
    ],
)
def test_every_pair_is_in_one_block_of_its_expert(counts: tuple[int, ...]) -> None:
    """As many blocks are launched as any choice may need; some of these choices need all of them."""
    most, experts = 4, len(counts)
    chosen = [expert for expert, count in enumerate(counts) for _ in range(count)]
    chosen = chosen[1::2] + chosen[::2]
    pairs = len(chosen)
    launched = min(pairs, pairs // most + experts)
    found = blocks_of(chosen, experts=experts, most=most, blocks=launched)
    expected = []
    for expert in range(experts):
        mine = [pair for pair, other in enumerate(chosen) if other == expert]
        expected += [(expert, mine[start : start + most]) for start in range(0, len(mine), most)]
    assert found == expected


@pytest.mark.parametrize("counts", [(0, 0, 70, 0, 0), (16, 32, 0, 16, 0), (17, 1, 1, 1, 1), (33, 33, 33, 33, 33)])
def test_however_rows_are_spread_over_experts(counts: tuple[int, ...]) -> None:
    """All rows to one expert, whole blocks, and one more than whole blocks."""
    index = torch.tensor([expert for expert, count in enumerate(counts) for _ in range(count)], device=DEVICE)[:, None]
    x = torch.randn(len(index), WIDTH, generator=torch.Generator().manual_seed(9)).to(DEVICE)
    weight = torch.ones(len(index), 1, device=DEVICE)
    plain = plain_experts()
    expected = plain(x, index, weight)
    torch.testing.assert_close(CudaExperts(plain)(x, index, weight), expected, atol=2e-6, rtol=2e-5)


def test_rows_of_zeros_stay_zero() -> None:
    x, index, weight = routed(3, torch.float32)
    assert not CudaExperts(plain_experts(), "a8")(torch.zeros_like(x), index, weight).any()


@pytest.mark.parametrize("name", ["nf4", "int8"])
def test_the_tiled_layout_holds_the_same_codes_and_scales(name: str) -> None:
    codec, weight = CODECS[name], torch.randn(2, 48, 192, generator=torch.Generator().manual_seed(0))
    encoded = codec.encode(weight)
    expected = codec.decode(encoded)
    part = tiled(codec, encoded, "a8")
    assert (part.codes.data_ptr(), part.scales.data_ptr()) == (encoded.codes.data_ptr(), encoded.scales.data_ptr())
    assert part.shape == (2, 48, 192)
    codes = torch.cat((part.codes & 15, part.codes >> 4), dim=-1) if part.is_nf4 else part.codes
    levels = torch.tensor(LEVELS)[codes.int()] if part.is_nf4 else codes.float()
    scales = torch.empty_like(part.scales)
    scales[..., [16 * block + 8 * half + row for block in range(3) for row in range(8) for half in range(2)]] = (
        part.scales
    )
    decoded = (levels * scales.float()[..., None]).transpose(1, 2).flatten(-2)
    assert torch.equal(decoded, expected)


@pytest.mark.parametrize("name", ["nf4", "int8"])
def test_a_lane_of_wgmma_has_its_bytes_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of its registers (PTX ISA, operand A of `wgmma`), for two products of 16 inputs one after the other.

    A register has two adjacent weights, which nf4 stores in one byte, with the first one in the high half.
    """

    def in_order(kind: tiles.MmaKind, activations: tiles.Activations) -> Tiled:
        monkeypatch.setattr(tiles, "mma_kind", lambda _: kind)
        weight = torch.randn(1, 32, 128, generator=torch.Generator().manual_seed(0))
        return tiled(CODECS[name], CODECS[name].encode(weight), activations)

    plain, by_lanes = in_order("mma.sync", "a16"), in_order("wgmma", "a16")
    assert (plain.by_lanes, by_lanes.by_lanes, in_order("wgmma", "a8").by_lanes) == (False, True, False)
    codes = torch.cat((plain.codes & 15, plain.codes >> 4), dim=-1) if name == "nf4" else plain.codes
    # Axes: groups, their halves for int8, blocks of 16 rows, lanes, bytes.
    runs = by_lanes.codes.view(plain.codes.dtype).view(2, -1, 2, 32, 16)
    eights, halves, rows = range(4), range(2), (0, 8)
    for group, block, lane in product(range(2), range(2), range(32)):
        of_lane = codes[0, group, 16 * block + lane // 4 :, 2 * (lane % 4) :]
        pairs = {place: of_lane[place[1], place[0] :][:2].tolist() for place in product(range(0, 64, 8), rows)}
        if name == "nf4":
            order = [pairs[8 * eight + 32 * half, row] for eight, row, half in product(eights, rows, halves)]
            assert runs[group, 0, block, lane].tolist() == [first << 4 | second for first, second in order]
        else:
            for half in halves:
                order = [pairs[8 * eight + 32 * half, row] for eight, row in product(eights, rows)]
                assert runs[group, half, block, lane].tolist() == [code for pair in order for code in pair]


@pytest.mark.parametrize("codecs", [("nf4", "nf4"), ("int8", "int8"), ("nf4", "int8")])
@pytest.mark.parametrize("rows", [3, 40])
def test_bytes_in_the_order_of_lanes_give_the_same_products(
    monkeypatch: pytest.MonkeyPatch, rows: int, codecs: tuple[str, str]
) -> None:
    monkeypatch.setattr(tiles, "mma_kind", lambda _: "wgmma")
    x, index, weight = routed(rows, torch.float32)
    plain = plain_experts(*codecs)
    expected = plain(x, index, weight)
    torch.testing.assert_close(CudaExperts(plain)(x, index, weight), expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_as_int8_are_within_half_a_step(dtype: torch.dtype) -> None:
    """In fp16, too, where scales are not rounded to fp16."""
    x = torch.randn(7, 320, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    x[:, 5] *= 50
    x[3, 64:128] = 0
    rows = quantize_groups(x)
    back = rows.codes.float() * rows.scales.repeat_interleave(64, dim=1)
    assert ((back - x).abs() <= rows.scales.repeat_interleave(64, dim=1) * 0.5001).all()
    assert rows.codes.abs().max() == 127
    assert not rows.codes[3, 64:128].any() and rows.scales[3, 1] == 0


@pytest.mark.parametrize("activations", ["a16", "a8"])
@pytest.mark.parametrize("part", ["gate_up_proj", "down_proj"])
def test_a_damaged_scale_shows(part: str, activations: Activations) -> None:
    """Rounding activations to int8 must not turn NaN into a number, or the check of logits would see nothing."""
    x, index, weight = routed(21, torch.float32)
    plain = plain_experts()
    getattr(plain, part).scales[0, 0, 0] = torch.nan
    found = CudaExperts(plain, activations)(x, index, weight)
    chose = (index == 0).any(dim=1)
    assert not found[chose].isfinite().all(dim=1).any() and found[~chose].isfinite().all()
