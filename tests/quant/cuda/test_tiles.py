"""Which tile a GEMM takes, and that every tile gives the same result."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from quant.cuda import tiles
from quant.cuda.linear import CudaLinear
from quant.cuda.tiles import EXPERTS, GATED, LINEAR, Feeding, Tile, feeding, tile_of
from tests.kernels import needs_interpreter
from tests.quant.cuda.test_linear import IN, plain_linear


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
    assert tile_of(rows, columns, LINEAR["warp"]) == tile


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((8, 0), "warp"),
        ((8, 6), "warp"),
        ((8, 9), "warp"),
        ((9, 0), "warpgroup"),
        ((10, 0), "warpgroup"),
        ((12, 0), "warp"),
    ],
)
def test_capabilities(capability: tuple[int, int], expected: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    feeding.cache_clear()
    assert feeding(torch.device("cuda:0")) == expected
    feeding.cache_clear()
    assert feeding(torch.device("cpu")) == "warp"


def test_every_width_that_can_be_multiplied_has_a_tile() -> None:
    for name in get_args(Feeding):
        for several in (LINEAR[name], *GATED[name].values()):
            assert [tile.rows for tile in several] == sorted({tile.rows for tile in several})
            assert all(tile_of(rows, 64, several).columns == 64 for rows in (1, 256, 512))
        assert all(few <= many for few, many in EXPERTS[name].values())


@needs_interpreter
@pytest.mark.parametrize("codec", ["nf4", "int8"])
@pytest.mark.parametrize("name", get_args(Feeding))
def test_results_do_not_depend_on_the_tile(codec: str, name: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = plain_linear(codec, 128)
    x = torch.randn(130, IN, generator=torch.Generator().manual_seed(3))
    expected = plain(x)
    monkeypatch.setattr(tiles, "feeding", lambda _: name)
    fast = CudaLinear(plain, "a16")
    for count in (3, 30, 70, 130):
        torch.testing.assert_close(fast(x[:count]), expected[:count], atol=3e-6, rtol=2e-5)
