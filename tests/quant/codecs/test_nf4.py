"""nf4: bitsandbytes' levels and packing, with a better scale than the absolute maximum."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quant.codecs import nf4
from quant.codecs.codec import Encoded, squared_error
from quant.codecs.nf4 import LEVELS, TINY, Nf4

NF4 = Nf4()
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def student_t(*shape: int, freedom: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(shape, generator=generator)
    chi = torch.randn((freedom, *shape), generator=generator).square().mean(dim=0)
    return (normal / chi.sqrt()).to(torch.bfloat16)


def relative_rmse(decoded: Tensor, source: Tensor) -> float:
    return float((decoded.float() - source.float()).norm() / source.float().norm())


def bitsandbytes() -> Any:
    """The library to compare with, if installed: a machine with a card may have little else than torch."""
    return pytest.importorskip("bitsandbytes.functional")


def absmax_nf4(weight: Tensor) -> Tensor:
    """bitsandbytes' own codes, decoded with its statistics rounded to 16 bits as ours are."""
    codes, state = bitsandbytes().quantize_4bit(weight, blocksize=64, quant_type="nf4")
    state.absmax = state.absmax.to(torch.bfloat16).float()
    state.dtype = torch.float32
    return bitsandbytes().dequantize_4bit(codes, state)


def by_bitsandbytes(encoded: Encoded, dtype: torch.dtype) -> Tensor:
    shape = torch.Size((*encoded.codes.shape[:-1], encoded.codes.shape[-1] * 2))
    absmax = encoded.scales.float().flatten()
    state = bitsandbytes().QuantState(absmax, shape, blocksize=64, quant_type="nf4", dtype=dtype)
    return bitsandbytes().dequantize_4bit(encoded.codes, state)


def test_levels_are_those_of_bitsandbytes() -> None:
    assert torch.equal(torch.tensor(LEVELS), bitsandbytes().get_4bit_type("nf4", device="cpu"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_decodes_to_the_bits_of_bitsandbytes(dtype: torch.dtype) -> None:
    encoded = NF4.encode(student_t(96, 704))
    assert torch.equal(NF4.decode(encoded, dtype), by_bitsandbytes(encoded, dtype))


def test_the_tested_scales_have_both_signs() -> None:
    scales = NF4.encode(gaussian(96, 704)).scales
    assert 0.3 < float((scales < 0).float().mean()) < 0.7


def test_one_expert_of_a_fused_tensor_decodes_through_bitsandbytes() -> None:
    weight = gaussian(5, 24, 192)
    encoded = NF4.encode(weight)
    assert encoded.codes.shape == (5, 24, 96)
    assert encoded.scales.shape == (5, 24, 3)
    assert torch.equal(by_bitsandbytes(encoded[3], torch.float32), NF4.decode(encoded)[3])


def test_packs_the_first_of_two_weights_into_the_high_bits() -> None:
    weight = torch.zeros(1, 64)
    weight[0, 0], weight[0, 3] = 1.0, -1.0
    encoded = NF4.encode(weight)
    first, second = encoded.codes[0, :2].tolist()
    extremes = (0xF7, 0x70) if float(encoded.scales[0, 0]) > 0 else (0x07, 0x7F)
    assert (first, second) == extremes


@pytest.mark.parametrize("dtype", FLOATS)
def test_stored_parts_have_the_same_types_for_every_source(dtype: torch.dtype) -> None:
    encoded = NF4.encode(gaussian(4, 128).to(dtype))
    assert (encoded.codes.dtype, encoded.scales.dtype) == (torch.uint8, torch.bfloat16)


def test_error_is_at_least_seven_percent_below_absmax_on_gaussian_weights() -> None:
    weight = gaussian(1024, 1024)
    fitted, plain = relative_rmse(NF4.decode(NF4.encode(weight)), weight), relative_rmse(absmax_nf4(weight), weight)
    assert fitted < 0.93 * plain
    assert plain == pytest.approx(0.092, abs=0.0005), "the baseline is the published one"


def test_error_is_below_absmax_on_heavy_tails() -> None:
    weight = student_t(512, 1024)
    assert relative_rmse(NF4.decode(NF4.encode(weight)), weight) < 0.95 * relative_rmse(absmax_nf4(weight), weight)


def test_codes_are_the_nearest_for_the_stored_scale() -> None:
    weight = student_t(64, 256)
    encoded = NF4.encode(weight)
    chosen = (NF4.decode(encoded) - weight.float()).abs()
    levels = torch.tensor(LEVELS) * encoded.scales.float().repeat_interleave(64, dim=-1).unsqueeze(-1)
    nearest = (levels - weight.float().unsqueeze(-1)).abs().amin(dim=-1)
    assert torch.allclose(chosen, nearest, rtol=1e-6, atol=1e-7)


def test_no_neighbouring_scale_is_better_by_more_than_the_search_can_miss() -> None:
    weight = gaussian(256, 64).float()
    encoded = NF4.encode(weight)
    error = (NF4.decode(encoded) - weight).square().sum(dim=-1)
    levels = torch.tensor(LEVELS)
    best = error.clone()
    for factor in torch.linspace(0.6, 1.1, 60):
        for sign in (1, -1):
            scale = sign * factor * weight.abs().amax(dim=-1, keepdim=True)
            off = (levels * scale.unsqueeze(-1) - weight.unsqueeze(-1)).abs().amin(dim=-1)
            best = torch.minimum(best, off.square().sum(dim=-1))
    assert float(error.sum()) < 1.007 * float(best.sum())


def test_is_the_same_whatever_surrounds_a_group() -> None:
    weight = gaussian(70, 4096)
    whole, part = NF4.encode(weight), NF4.encode(weight[37:41])
    assert torch.equal(whole.codes[37:41], part.codes)
    assert torch.equal(whole.scales[37:41], part.scales)


def test_is_the_same_whatever_is_torch_s_default_dtype(
    another_default_dtype: Callable[[], AbstractContextManager[None]],
) -> None:
    weight = gaussian(8, 128)
    expected = NF4.encode(weight)
    nf4._tables.cache_clear()
    with another_default_dtype():
        found = NF4.encode(weight)
    nf4._tables.cache_clear()
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scales, expected.scales)


def test_is_scale_free() -> None:
    weight = gaussian(8, 128)
    plain, tiny = NF4.encode(weight), NF4.encode(weight * 2.0**-80)
    assert torch.equal(plain.codes, tiny.codes)
    assert torch.equal(plain.scales * 2.0**-80, tiny.scales)


def test_zeros_stay_zeros() -> None:
    encoded = NF4.encode(torch.zeros(3, 128, dtype=torch.bfloat16))
    assert torch.equal(encoded.codes, torch.full((3, 64), 0x77, dtype=torch.uint8))
    assert not encoded.scales.any()
    assert torch.equal(NF4.decode(encoded), torch.zeros(3, 128))


@given(st.lists(st.floats(-60_000, 60_000, width=32), min_size=64, max_size=64))
@settings(max_examples=60, deadline=None)
def test_no_weight_moves_further_than_half_a_gap_of_the_largest(values: list[float]) -> None:
    weight = torch.tensor([values])
    decoded = NF4.decode(NF4.encode(weight))
    assert torch.isfinite(decoded).all()
    assert float((decoded - weight).abs().max()) <= max(TINY, 0.2 * float(weight.abs().max()))


def test_groups_of_every_magnitude_are_encoded() -> None:
    """Down to magnitudes that are stored as zeros, with and without zeros in the group."""
    unit = gaussian(2, 64).float()
    unit /= unit.abs().amax(dim=-1, keepdim=True)
    unit[1, ::3] = 0.0
    halves = (*range(-298, -200), *range(-200, 255, 12), 255)
    weight = torch.cat([unit * 2.0 ** (half / 2) for half in halves])
    decoded = NF4.decode(NF4.encode(weight))
    absmax = weight.abs().amax(dim=-1)
    off = (decoded - weight).abs().amax(dim=-1)
    assert (off <= torch.where(absmax > 2 * TINY, 0.2 * absmax, absmax)).all()


def test_an_outlier_may_lie_beyond_the_outermost_level() -> None:
    """For some groups of two values and a larger one, the best scale is well below the larger value."""
    generator = torch.Generator().manual_seed(0)
    above, below = torch.rand(2, 8192, 1, generator=generator)
    weight = torch.where(torch.rand(8192, 64, generator=generator) < 0.5, above, -below)
    weight[:, 0] = 1.0
    encoded = NF4.encode(weight)
    assert float(encoded.scales.abs().min()) < 0.8
    assert float((NF4.decode(encoded) - weight).abs().max()) < 0.3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_refuses_values_that_are_not_finite(value: float) -> None:
    weight = gaussian(4, 128)
    weight[2, 70] = value
    with pytest.raises(ValueError, match="finite"):
        NF4.encode(weight)


@pytest.mark.parametrize("shape", [(64,), (4, 96), (0, 64)])
def test_refuses_shapes_that_do_not_divide_into_groups(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        NF4.encode(torch.zeros(shape))


def test_refuses_integers() -> None:
    with pytest.raises(ValueError, match="dtype"):
        NF4.encode(torch.zeros(4, 64, dtype=torch.int32))


@pytest.mark.gpu
def test_cuda_and_cpu_agree() -> None:
    weight = gaussian(512, 704)
    here, there = NF4.encode(weight), NF4.encode(weight.cuda())
    assert float((here.codes != there.codes.cpu()).float().mean()) < 1e-3
    assert torch.equal(NF4.decode(Encoded(codes=here.codes.cuda(), scales=here.scales.cuda())).cpu(), NF4.decode(here))


@pytest.mark.parametrize("shape", [(7, 64), (5, 3, 192), (2, 1 << 18)])
def test_squared_errors_of_rows_of_every_length(shape: tuple[int, ...]) -> None:
    source = gaussian(*shape).float()
    squared, norm = squared_error(torch.full(shape, 0.5), source)
    assert squared == pytest.approx(float((source.double() - 0.5).square().sum()), rel=1e-5)
    assert norm == pytest.approx(float(source.double().square().sum()), rel=1e-5)


def test_tables_stay_where_they_are_whatever_other_devices_there_are() -> None:
    """A captured step reads the tables by address."""
    before = nf4._tables(torch.device("cpu"))
    for number in range(16):
        nf4._tables(torch.device("meta", number))
    assert nf4._tables(torch.device("cpu")) is before
