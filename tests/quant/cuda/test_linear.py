"""Linear layers of a card against the plain ones."""

from __future__ import annotations

import pytest
import torch

from localdiff.memory_account import CANVAS
from quant.codecs import CODECS
from quant.codecs.codec import GROUP
from quant.cuda import linear as module
from quant.cuda import tiles
from quant.cuda.linear import MAX_ROWS, CudaLinear, Weight
from quant.cuda.rows import quantize_groups
from quant.modules.tensor import QuantTensor
from tests.gpu.kernels import DEVICE, HALVES, needs_triton
from tests.models.quantized import IN, plain_linear

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]


def rows(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, IN, generator=torch.Generator().manual_seed(count)).to(DEVICE, dtype)


@pytest.mark.parametrize("codec", ["nf4", "int8"])
@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_with_activations_as_they_are_it_is_the_same_product(codec: str, count: int, dtype: torch.dtype) -> None:
    plain, x = plain_linear(codec), rows(count, dtype)
    expected = plain(x)
    tolerance = {torch.float32: (3e-6, 2e-5), torch.float16: (3e-3, 3e-3), torch.bfloat16: (2.4e-2, 2.4e-2)}[dtype]
    torch.testing.assert_close(CudaLinear(plain, "a16")(x), expected, atol=tolerance[0], rtol=tolerance[1])
    assert not plain.weight.codes.numel(), "the weight is held once, in another order"


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_with_activations_in_int8_the_error_is_that_of_int8(codec: str) -> None:
    plain, x = plain_linear(codec), rows(3)
    expected = plain(x)
    fast = CudaLinear(plain, "a8")
    assert fast.path == f"{'w4' if codec == 'nf4' else 'w8'}a8, Triton"
    error = (fast(x) - expected).norm() / expected.norm()
    assert 1e-4 < error < 0.02


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_in_int8_nothing_is_rounded_but_rows_and_levels(codec: str) -> None:
    plain, x = plain_linear(codec), rows(20)
    scales = plain.weight.scales.float().repeat_interleave(GROUP, dim=1)
    weight = plain.weight.decode(torch.float32)
    if codec == "nf4":
        weight = (127 * weight / scales).round() / 127 * scales
    ours = quantize_groups(x)
    expected = (ours.codes.float() * ours.scales.repeat_interleave(GROUP, dim=1)) @ weight.T
    torch.testing.assert_close(CudaLinear(plain, "a8")(x), expected, atol=3e-6, rtol=2e-5)


def test_axes_before_the_last_stay() -> None:
    plain, x = plain_linear("int8"), rows(6).view(2, 3, IN)
    expected = plain(x)
    torch.testing.assert_close(CudaLinear(plain, "a16")(x), expected, atol=3e-6, rtol=2e-5)


@pytest.mark.parametrize("activations", ["a16", "a8"])
def test_rows_may_have_gaps_between_them(activations: tiles.Activations) -> None:
    fast, wide = CudaLinear(plain_linear("int8"), activations), torch.cat((rows(6), rows(6)), dim=-1)
    assert torch.equal(fast(wide[:, :IN]), fast(rows(6)))
    assert torch.equal(fast(rows(6).T.contiguous().T), fast(rows(6)))


def test_more_rows_than_one_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.LINEAR, tiles.mma_kind(DEVICE), (tiles.Tile(16, 64, 4),))
    plain, x = plain_linear("int8"), rows(40)
    expected = plain(x)
    torch.testing.assert_close(CudaLinear(plain, "a16")(x), expected, atol=3e-6, rtol=2e-5)


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_many_rows_are_multiplied_by_the_weight_decoded_whole(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    plain, few, many = plain_linear(codec, 128), rows(8), rows(9)
    expected = [plain(x) for x in (few, many)]
    fast = CudaLinear(plain, "a16")
    torch.testing.assert_close(fast(few), expected[0], atol=3e-6, rtol=2e-5)
    assert torch.equal(fast(many), expected[1]), "the same weight through the same product"
    assert fast.product.gated(few) is not None and fast.product.gated(many) is None


def test_in_int8_many_rows_are_multiplied_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, x = CudaLinear(plain_linear("int8"), "a8"), rows(9)
    expected = fast(x)
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    assert torch.equal(fast(x), expected)


@pytest.mark.parametrize("kind", ["mma.sync", "wgmma"])
@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_parts_add_up_to_the_product(codec: str, kind: tiles.MmaKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "mma_kind", lambda _: kind)
    plain, x = plain_linear(codec), rows(20)
    expected = plain(x)
    fast = CudaLinear(plain, "a16")
    monkeypatch.setattr(tiles, "parts_of", lambda *_: 2)
    parts = fast(x, in_parts=True)
    assert parts.shape == (2, *expected.shape) and parts.dtype == torch.float32
    torch.testing.assert_close(parts.sum(dim=0), expected, atol=3e-6, rtol=2e-5)
    half = plain_linear(codec).weight.decode(torch.float32)[:, :GROUP]
    torch.testing.assert_close(parts[0], x[:, :GROUP] @ half.T, atol=3e-6, rtol=2e-5)
    assert fast(x).shape == expected.shape, "whoever wants a sum gets one"
    monkeypatch.setattr(tiles, "parts_of", lambda *_: 1)
    assert fast(x, in_parts=True).shape == expected.shape
    assert fast(x[:0], in_parts=True).shape == (0, 64)


@pytest.mark.parametrize(("groups", "wanted", "count"), [(1, 4, 1), (2, 4, 2), (4, 3, 2), (9, 4, 3), (10, 4, 4)])
def test_no_part_is_without_a_group(groups: int, wanted: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would begin after the last scale. `localdiff tune` may try four parts on a small model's weights."""
    monkeypatch.setattr(tiles, "parts_of", lambda *_: wanted)
    weight = QuantTensor.of(CODECS["int8"], torch.randn(64, groups * GROUP, device=DEVICE))
    x = torch.randn(3, groups * GROUP, device=DEVICE)
    expected = x @ weight.decode(torch.float32).T
    parts = Weight.of(weight, "a16").parts(x)
    if count == 1:
        assert parts is None
    else:
        assert parts is not None and len(parts) == count
        torch.testing.assert_close(parts.sum(dim=0), expected, atol=2e-5, rtol=2e-5)


def test_what_is_decoded_whole_has_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    monkeypatch.setattr(tiles, "parts_of", lambda *_: 2)
    fast = CudaLinear(plain_linear("int8"), "a16")
    assert fast(rows(9), in_parts=True).shape == (9, 64)


def test_a_step_with_a_commit_has_few_rows() -> None:
    assert 2 * CANVAS <= MAX_ROWS
