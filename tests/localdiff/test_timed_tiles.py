"""The file of timed tiles: what is read back, and when it no longer counts."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff import timed_tiles
from localdiff.errors import ResourceError
from localdiff.kernels.attention import AttentionTile
from localdiff.timed_tiles import (
    AnyTile,
    StaleTiles,
    keep_timed_tiles,
    read_timed_tiles,
    take_timed_tiles,
    tiles_file,
)
from quant.cuda import timed
from quant.cuda.tiles import ExpertTile, Tile
from quant.cuda.timed import Kind, Product, timed_count
from quant.switch import SwitchError
from tests.gpu.kernels import needs_triton

pytestmark = needs_triton

CARD = torch.device("cuda", 0)


def product(kind: Kind, weights: str = "w4a16") -> Product:
    return Product(kind=kind, weights=weights, dtype="bf16", rows=256, columns=2816, inputs=704)


TILES: dict[Product, AnyTile] = {
    product("experts"): ExpertTile(32, 32, few=8, warps=8, byte_table=True, fetched=4),
    product("linear"): Tile(64, 64, 4, stages=4, parts=3),
    product("gated"): Tile(64, 64, 8, programs_per_sm=0.75),
    product("soft", "w8a16"): Tile(128, 128, 8),
    product("attention", ""): AttentionTile(64, 32, 8, stages=1, splits=4),
}


@pytest.fixture(autouse=True)
def a_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timed, "_timed", {})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA GeForce RTX 4090/x")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))


def change(**fields: Any) -> None:
    file = tiles_file(CARD)
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_what_is_kept_is_taken_by_later_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_timed_tiles(CARD) == {} and take_timed_tiles(CARD) == 0
    file = keep_timed_tiles(CARD, TILES)
    assert file == tmp_path / "tiles" / "NVIDIA-GeForce-RTX-4090-x.json"
    assert read_timed_tiles(CARD) == TILES
    with caplog.at_level("INFO"):
        assert take_timed_tiles(CARD) == timed_count(CARD) == len(TILES)
    assert caplog.messages == ["tiles: 5 were timed on this GPU by `localdiff tune`"]
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_to_keep_none_deletes_the_file() -> None:
    file = keep_timed_tiles(CARD, TILES)
    assert file is not None and file.exists()
    assert keep_timed_tiles(CARD, {}) is None and not file.exists()
    assert keep_timed_tiles(CARD, {}) is None


def test_a_switch_leaves_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_timed_tiles(CARD, TILES)
    for value in ("tiles", "all"):
        monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", value)
        assert take_timed_tiles(CARD) == 0
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "tile")
    with pytest.raises(SwitchError, match="unknown part `tile`"):
        take_timed_tiles(CARD)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"triton": "3.4.0"}, "they were timed with Triton 3.4.0"),
        ({"kernels": "0" * 64}, "they were timed with other kernels"),
        ({"gpu": "NVIDIA GeForce RTX 4090 x"}, "they were timed with other kernels"),
        ({"tiles": [{"product": None}]}, "`tiles.tiles[0].product` is not an object"),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_what_no_longer_counts_costs_a_warning_and_no_run(
    fields: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep_timed_tiles(CARD, TILES)
    take_timed_tiles(CARD)
    change(**fields)
    with pytest.raises(StaleTiles) as raised:
        read_timed_tiles(CARD)
    assert reason in str(raised.value)
    assert take_timed_tiles(CARD) == timed_count(CARD) == 0
    (message,) = caplog.messages
    assert message.startswith("timed tiles are not taken: ") and "`localdiff tune` times them again" in message


@pytest.mark.parametrize("content", ["raise ImportError('libtriton.so: undefined symbol')", ""])
def test_where_triton_does_not_load_none_count(content: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trying a kernel reports what is wrong with Triton."""
    keep_timed_tiles(CARD, TILES)
    (tmp_path / "triton.py").write_text(content)
    monkeypatch.delitem(sys.modules, "triton")
    monkeypatch.syspath_prepend(tmp_path)
    assert take_timed_tiles(CARD) == 0


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"gpu": 1}'])
def test_a_damaged_file_is_no_tiles(content: bytes) -> None:
    file = keep_timed_tiles(CARD, TILES)
    assert file is not None
    file.write_bytes(content)
    with pytest.raises(StaleTiles, match="cannot be read"):
        read_timed_tiles(CARD)


def test_a_product_needs_a_tile_of_its_kind() -> None:
    keep_timed_tiles(CARD, {product("experts"): TILES[product("experts")]})
    (entry,) = json.loads(tiles_file(CARD).read_text())["tiles"]
    entry["product"]["kind"] = "attention"
    change(tiles=[entry])
    with pytest.raises(StaleTiles, match="a product of kind `attention` has no tile"):
        read_timed_tiles(CARD)


def test_a_folder_that_takes_no_file(tmp_path: Path) -> None:
    (tmp_path / "tiles").write_text("")
    with pytest.raises(ResourceError, match="cannot be written"):
        keep_timed_tiles(CARD, TILES)


def test_kernels_are_known_by_their_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timed_tiles._kernels.cache_clear()
    before = timed_tiles._kernels()
    copied = tmp_path / "cuda"
    copied.mkdir()
    for source in Path(timed_tiles.quant.cuda.__file__ or "").parent.glob("*_kernels.py"):
        (copied / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(timed_tiles.quant.cuda, "__file__", str(copied / "__init__.py"))
    timed_tiles._kernels.cache_clear()
    assert timed_tiles._kernels() == before
    with (copied / "linear_kernels.py").open("a") as file:
        file.write("# another\n")
    timed_tiles._kernels.cache_clear()
    assert timed_tiles._kernels() != before
    timed_tiles._kernels.cache_clear()
