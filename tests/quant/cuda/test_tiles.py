"""Which tile a GEMM takes, and that every tile gives the same result."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

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
        ("wgmma", 132, 256, HEAD, True),
        ("wgmma", 132, 256, QKV, True),
        ("wgmma", 132, 512, QKV, True),
        ("wgmma", 132, 256, OUT, False),
        ("wgmma", 132, 65, QKV, False),  # 64 programs, on 132 SMs
        ("wgmma", 132, 65, HEAD, True),
        ("wgmma", 132, 64, HEAD, False),  # half of each tile would be empty
        ("wgmma", None, 256, HEAD, False),
        ("mma.sync", 128, 256, HEAD, True),
        ("mma.sync", 128, 256, QKV, False),
        ("mma.sync", 82, 512, QKV, True),
        ("mma.sync", 128, 64, HEAD, False),
    ],
)
def test_the_largest_tile_is_for_weights_that_give_every_sm_a_program(
    name: MmaKind, sms: int | None, rows: int, columns: int, largest: bool
) -> None:
    tile = tile_of(rows, columns, LINEAR[name], sms)
    assert (tile == Tile(128, 128, 8, programs_per_sm=LINEAR[name][-1].programs_per_sm)) == largest
    if not largest:
        assert tile == tile_of(rows, columns, LINEAR[name][:-1])


@pytest.mark.skipif(EMULATED > 0, reason="a CPU has been given the tiles of a GPU")
@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((8, 0), "mma.sync"),
        ((8, 6), "mma.sync"),
        ((8, 9), "mma.sync"),
        ((9, 0), "wgmma"),
        ((10, 0), "tcgen05"),
        ((12, 0), "mma.sync"),
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
