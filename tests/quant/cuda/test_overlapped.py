"""Kernels in Gluon, against Triton kernels that compute the same."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import chain

import pytest
import torch

from quant.codecs import CODECS
from quant.cuda import tiles
from quant.cuda.experts import CudaExperts
from quant.cuda.linear import Weight
from quant.cuda.tiles import ExpertTile, Tile
from quant.modules import QuantTensor
from tests.bench.inner_loops import innermost
from tests.gpu.kernels import DEVICE, EMULATED, HAS_CARD, HAS_TRITON
from tests.gpu.kernels_aot import build
from tests.gpu.machine_code import beside_products, instructions, overwritten_operands
from tests.gpu.specializations import Launch
from tests.models.quantized import EXPERTS, plain_experts

HAS_GLUON = HAS_TRITON and importlib.util.find_spec("triton.experimental.gluon") is not None
IS_HOPPER = HAS_GLUON and bool(EMULATED or HAS_CARD) and tiles.mma_kind(DEVICE) == "wgmma"
needs_hopper = pytest.mark.skipif(not IS_HOPPER, reason="kernels in Gluon are for an H100")


def test_no_tile_is_chosen_that_nobody_has_timed() -> None:
    gated = [tile for by_activations in tiles.GATED.values() for several in by_activations.values() for tile in several]
    assert not any(tile.overlaps for tile in (*chain(*tiles.LINEAR.values()), *gated))
    for tile in chain(*(by_activations.values() for by_activations in tiles.EXPERTS.values())):
        assert not (tile.overlaps or tile.by_warp or tile.side_by_side or tile.fetched)


def product(tile: Tile, rows: int, width: int, parts: int, *, gated: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(256, width, generator=generator) / width**0.5
    x = torch.randn(rows, width, generator=generator).to(DEVICE, torch.bfloat16)
    fast = Weight.of(QuantTensor.of(CODECS["int8"], weight.to(DEVICE)), "a16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiles.LINEAR, "wgmma", (tile,))
        patch.setitem(tiles.GATED["wgmma"], "a16", (tile,))
        return fast._product(x, 128 if gated else 256, gated=gated, parts=parts)


@needs_hopper
@pytest.mark.parametrize(
    ("tile", "rows", "width", "parts", "gated"),
    [
        (Tile(64, 64, 4, stages=3), 20, 256, 1, False),
        (Tile(16, 64, 4, stages=2), 40, 64, 1, False),
        (Tile(32, 128, 8, stages=4), 40, 704, 3, False),
        (Tile(32, 128, 4, stages=3), 32, 320, 1, False),
        (Tile(32, 64, 8, stages=4), 20, 320, 1, True),
    ],
)
def test_a_linear_layer_has_the_same_bits(tile: Tile, rows: int, width: int, parts: int, gated: bool) -> None:
    """Groups: an even and an odd number, just one, fewer than there are stages; and parts of unequal size."""
    found = product(replace(tile, overlaps=True), rows, width, parts, gated=gated)
    assert torch.equal(found, product(tile, rows, width, parts, gated=gated))


def of_experts(tile: ExpertTile, width: int, inner: int, rows: int) -> torch.Tensor:
    fast = CudaExperts(plain_experts(width=width, inner=inner))
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(rows, width, generator=generator).to(DEVICE, torch.bfloat16)
    chosen = torch.rand(rows, EXPERTS, generator=generator).topk(2).indices.to(DEVICE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiles.EXPERTS["wgmma"], "a16", tile)
        return fast(x, chosen, torch.ones(rows, 2, device=DEVICE))


@needs_hopper
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(("width", "inner", "rows"), [(256, 64, 20), (192, 128, 40)])
def test_experts_have_the_same_bits(warps: int, width: int, inner: int, rows: int) -> None:
    """A program of the down projection has two tiles, or one that is too narrow for eight warps."""
    tile = ExpertTile(32, 32, stages=6, byte_table=True)
    found = of_experts(replace(tile, warps=warps, overlaps=True), width, inner, rows)
    assert torch.equal(found, of_experts(tile, width, inner, rows))


@needs_hopper
def test_the_assembler_leaves_decoding_beside_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves decoding past the wait for a product unless something prevents that."""
    from triton.runtime.jit import JITFunction

    launches = []
    monkeypatch.setattr(
        JITFunction, "run", lambda kernel, *args, **kwargs: launches.append(Launch.of(kernel, args, kwargs))
    )
    product(Tile(128, 64, 4, stages=4, overlaps=True), 128, 256, 1, gated=False)
    product(Tile(64, 64, 8, stages=4, overlaps=True), 64, 256, 1, gated=True)
    for warps in (4, 8):
        of_experts(ExpertTile(32, 32, stages=6, byte_table=True, warps=warps, overlaps=True), 256, 64, 40)
    overlapped = [launch for launch in launches if "overlapped" in launch.module]
    assert len(overlapped) == 6
    for launch in overlapped:
        code = instructions(build(launch, 90).asm["cubin"])
        body = innermost(code)
        assert beside_products(body) > len(body) * 3 / 4
        assert not overwritten_operands(code)
