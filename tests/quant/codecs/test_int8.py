"""int8: integers times a scale for each group."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.codecs.int8 import TINY, Int8

INT8 = Int8()


def test_decodes_to_code_times_scale() -> None:
    weight = torch.randn(12, 192, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    encoded = INT8.encode(weight)
    expected = encoded.codes.float().view(12, 3, 64) * encoded.scales.float().unsqueeze(-1)
    assert torch.equal(INT8.decode(encoded), expected.view(12, 192))
    assert torch.equal(INT8.decode(encoded, torch.bfloat16), expected.view(12, 192).to(torch.bfloat16))


def test_parts_keep_the_layout_of_fused_experts() -> None:
    encoded = INT8.encode(torch.randn(3, 5, 128))
    assert (encoded.codes.shape, encoded.codes.dtype) == ((3, 5, 128), torch.int8)
    assert (encoded.scales.shape, encoded.scales.dtype) == ((3, 5, 2), torch.bfloat16)


def test_error_of_gaussian_weights() -> None:
    weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
    error = (INT8.decode(INT8.encode(weight)) - weight).norm() / weight.norm()
    assert 0.005 < float(error) < 0.0065


@given(st.lists(st.floats(-60_000, 60_000, width=32), min_size=64, max_size=64))
@settings(max_examples=60, deadline=None)
def test_no_weight_moves_further_than_a_step_allows(values: list[float]) -> None:
    weight = torch.tensor([values])
    decoded = INT8.decode(INT8.encode(weight))
    # half a step, and what rounding the scale to bf16 adds at the far end; with a scale up to TINY all weights become 0
    bound = (0.5 / 127 + 2.0**-8) * float(weight.abs().max()) + 128 * TINY
    assert float((decoded - weight).abs().max()) <= bound


def test_codes_are_the_nearest_for_the_stored_scale() -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    encoded = INT8.encode(weight)
    scales = encoded.scales.float().repeat_interleave(64, dim=-1)
    assert ((INT8.decode(encoded) - weight).abs() <= 0.5001 * scales).all()


def test_codes_never_reach_minus_128() -> None:
    weight = torch.full((1, 64), -1.0) * torch.linspace(0.5, 1.5, 64).unsqueeze(-1)
    assert int(INT8.encode(weight).codes.min()) == -127


def test_zeros_stay_zeros() -> None:
    encoded = INT8.encode(torch.zeros(3, 128))
    assert not encoded.codes.any()
    assert not INT8.decode(encoded).any()


def test_refuses_values_that_are_not_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        INT8.encode(torch.full((1, 64), torch.inf))


@pytest.mark.parametrize(
    ("weight", "problem"),
    [(torch.zeros(64), "multiple of 64"), (torch.zeros(4, 96), "multiple of 64"), (torch.zeros(4, 64).int(), "dtype")],
    ids=["one-axis", "no-group", "integers"],
)
def test_refuses_what_no_codec_can_encode(weight: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        INT8.encode(weight)
