"""Which tile a GEMM takes, and that every tile gives the same result."""

from __future__ import annotations

from typing import get_args
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quant.cuda import tiles
from quant.cuda.linear import CudaLinear
from quant.cuda.tiles import EXPERTS, GATED, LINEAR, MmaKind, Tile, mma_kind, tile_of
from tests.gpu.kernels import DEVICE, EMULATED, QUICK, needs_interpreter
from tests.models.quantized import IN, plain_linear


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (1, 256, Tile(16, 64, 4)),
        (16, 256, Tile(16, 64, 4)),
        (17, 256, Tile(32, 64, 4)),
        (256, 256, Tile(64, 128, 8)),
        (256, 192, Tile(32, 64, 4)),
    ],
)
def test_tiles_follow_rows_and_columns(rows: int, columns: int, tile: Tile) -> None:
    assert tile_of(rows, columns, LINEAR["mma.sync"]) == tile


HEAD, QKV, OUT = 262144, 8192, 2816


@pytest.mark.parametrize(
    ("name", "sms", "rows", "columns", "largest"),
    [
        ("wgmma", 132, 256, HEAD, (256, 64)),
        ("wgmma", 132, 256, QKV, (128, 128)),
        ("wgmma", 132, 512, QKV, (128, 128)),
        ("wgmma", 132, 256, OUT, None),
        ("wgmma", 132, 65, QKV, None),  # 64 programs, on 132 SMs
        ("wgmma", 132, 65, HEAD, (128, 128)),
        ("wgmma", 132, 64, HEAD, None),  # half of each tile would be empty
        ("wgmma", None, 256, HEAD, None),
        ("mma.sync", 128, 256, HEAD, (128, 128)),
        ("mma.sync", 128, 256, QKV, None),
        ("mma.sync", 82, 512, QKV, (128, 128)),
        ("mma.sync", 128, 64, HEAD, None),
    ],
)
def test_the_largest_tiles_are_for_weights_that_give_every_sm_a_program(
    name: MmaKind, sms: int | None, rows: int, columns: int, largest: tuple[int, int] | None
) -> None:
    tile = tile_of(rows, columns, LINEAR[name], sms)
    if largest is not None:
        assert (tile.rows, tile.columns) == largest and tile.programs_per_sm
    else:
        assert tile == tile_of(rows, columns, [tile for tile in LINEAR[name] if not tile.programs_per_sm])


def test_blocks_of_experts_follow_the_average_of_their_rows() -> None:
    tile = EXPERTS["wgmma"]["a16"]
    in_a_step, with_a_commit, of_a_prompt = 256 * 8, 512 * 8, 1024 * 8
    assert [tile.rows(pairs, 128) for pairs in (in_a_step, with_a_commit)] == [32, 64]
    assert [tile.rows(pairs, 128, by_table=True) for pairs in (with_a_commit, of_a_prompt)] == [32, 64]
    others = EXPERTS["mma.sync"]["a16"]
    assert others.rows(in_a_step, 128, by_table=True) == others.rows(in_a_step, 128) == 16


@pytest.mark.parametrize(
    ("name", "programs", "groups", "parts"),
    [
        ("wgmma", 88, 64, 3),  # the output projections in a step, on 132 SMs
        ("wgmma", 88, 33, 3),  # the dense MLP's down projection
        ("wgmma", 176, 64, 2),  # in a step with a commit
        ("wgmma", 256, 44, 1),  # queries, keys and values
        ("wgmma", 4, 64, tiles.MAX_PARTS),
        ("wgmma", 4, 16, 2),  # no part of fewer groups
        ("wgmma", 4, 1, 1),
        ("mma.sync", 88, 64, 1),  # never, until somebody has timed it
        ("tcgen05", 88, 64, 1),
    ],
)
def test_products_of_few_programs_are_cut_into_parts(
    name: MmaKind, programs: int, groups: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "mma_kind", lambda _: name)
    monkeypatch.setattr(tiles, "sm_count", lambda _: 132)
    assert tiles.parts_of(programs, groups, DEVICE) == parts


@given(programs=st.integers(1, 500), groups=st.integers(1, 200), sms=st.integers(1, 200))
def test_no_part_is_empty(programs: int, groups: int, sms: int) -> None:
    with mock.patch.multiple(tiles, mma_kind=lambda _: "wgmma", sm_count=lambda _: sms):
        parts = tiles.parts_of(programs, groups, DEVICE)
    share = -(-groups // parts)
    assert (parts - 1) * share < groups <= parts * share


@pytest.mark.skipif(EMULATED > 0, reason="a CPU has been given the tiles of a GPU")
@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((8, 0), "mma.sync"),
        ((8, 6), "mma.sync"),
        ((8, 9), "mma.sync"),
        ((9, 0), "wgmma"),
        ((10, 0), "tcgen05"),
        ((10, 3), "tcgen05"),
        ((11, 0), "tcgen05"),
        ((12, 0), "mma.sync"),
        ((12, 1), "mma.sync"),
    ],
)
def test_capabilities(capability: tuple[int, int], expected: MmaKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    mma_kind.cache_clear()
    assert mma_kind(torch.device("cuda:0")) == expected
    mma_kind.cache_clear()
    assert mma_kind(torch.device("cpu")) == "mma.sync"


def test_every_width_that_can_be_multiplied_has_a_tile() -> None:
    for name in get_args(MmaKind):
        for several in (LINEAR[name], *GATED[name].values()):
            modest = [tile.rows for tile in several if not tile.programs_per_sm]
            assert modest == sorted(set(modest)) and max(modest) <= several[-1].rows
            assert all(tile_of(rows, 64, several, 1).columns == 64 for rows in (1, 256, 512))
        assert all(tile.few_rows <= tile.many_rows for tile in EXPERTS[name].values())


@needs_interpreter
@pytest.mark.parametrize("codec", ["nf4", "int8"])
@pytest.mark.parametrize("name", [tiles.mma_kind(DEVICE)] if EMULATED else get_args(MmaKind))
def test_results_do_not_depend_on_the_tile(codec: str, name: MmaKind, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = plain_linear(codec, 128)
    x = torch.randn(130, IN, generator=torch.Generator().manual_seed(3)).to(QUICK)
    expected = plain(x)
    tolerance = {"atol": 3e-6, "rtol": 2e-5} if torch.float32 == QUICK else {"atol": 2.4e-2, "rtol": 2.4e-2}
    monkeypatch.setattr(tiles, "mma_kind", lambda _: name)
    fast = CudaLinear(plain, "a16")
    for count in (3, 30, 70, 130):
        torch.testing.assert_close(fast(x[:count]), expected[:count], **tolerance)
    taken = [tile_of(130, 128, LINEAR[name], 1)]
    monkeypatch.setattr(tiles, "tile_of", lambda *_: taken[0])
    torch.testing.assert_close(fast(x), expected, **tolerance)
    assert taken[0].programs_per_sm
