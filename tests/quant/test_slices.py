"""Tensors larger than memory, a slice at a time."""

from __future__ import annotations

import pytest
import torch

from quant.codec import stored_bytes
from quant.codecs import CODECS
from quant.slices import encode_slices, slices


def test_slices_cover_the_first_axis_in_order() -> None:
    parts = list(slices((128, 1408, 2816), 2))
    assert [index for part in parts for index in range(part.start, part.stop)] == list(range(128))
    assert all((part.stop - part.start) * 1408 * 2816 * 2 <= 16_000_000 for part in parts)


def test_one_entry_larger_than_the_limit_is_a_slice() -> None:
    assert list(slices((3, 1000), 2, limit=100)) == [slice(0, 1), slice(1, 2), slice(2, 3)]


def test_a_scalar_is_one_slice() -> None:
    assert list(slices((1,), 2)) == [slice(0, 1)]


@pytest.mark.parametrize("name", sorted(CODECS))
def test_slice_by_slice_is_the_same_as_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = CODECS[name]
    weight = torch.randn(7, 6, 128, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    seen: list[slice] = []

    def read(part: slice) -> torch.Tensor:
        seen.append(part)
        return weight[part]

    monkeypatch.setattr("quant.slices.slices", lambda shape, size: slices(shape, size, limit=2 * 6 * 128 * 2))
    result, whole = encode_slices(codec, weight.shape, read), codec.encode(weight)
    assert [part.stop - part.start for part in seen] == [2, 2, 2, 1]
    assert torch.equal(result.codes, whole.codes)
    assert torch.equal(result.scales, whole.scales)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_bytes_follow_from_the_shape(name: str) -> None:
    codec, shape = CODECS[name], (3, 10, 192)
    assert stored_bytes(codec, shape) == codec.encode(torch.randn(shape)).nbytes


def test_bytes_of_a_released_expert_tensor() -> None:
    weights = 128 * 1408 * 2816
    assert stored_bytes(CODECS["nf4"], (128, 1408, 2816)) == weights * 17 // 32
    assert stored_bytes(CODECS["int8"], (128, 1408, 2816)) == weights * 33 // 32
