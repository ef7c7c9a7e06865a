"""Tensors larger than memory, a slice at a time."""

from __future__ import annotations

import pytest
import torch

from quant.codecs import CODECS
from quant.codecs.codec import stored_bytes
from quant.files.reader import row_slices


def test_slices_cover_the_rows_in_order() -> None:
    parts = list(row_slices((128, 1408, 2816), 2))
    assert parts[0].start == 0
    assert parts[-1].stop == 128 * 1408
    assert all(before.stop == after.start for before, after in zip(parts, parts[1:], strict=False))
    assert all((part.stop - part.start) * 2816 * 2 <= 4_000_000 for part in parts)


def test_a_row_larger_than_the_limit_is_a_slice() -> None:
    assert list(row_slices((3, 1000), 2, limit=100)) == [slice(0, 1), slice(1, 2), slice(2, 3)]


@pytest.mark.parametrize("shape", [(), (1,), (2816,)])
def test_what_has_one_axis_is_one_row(shape: tuple[int, ...]) -> None:
    assert list(row_slices(shape, 2)) == [slice(0, 1)]


def test_an_empty_tensor_has_no_slices() -> None:
    assert list(row_slices((0, 64), 2)) == []


@pytest.mark.parametrize("name", sorted(CODECS))
def test_bytes_follow_from_the_shape(name: str) -> None:
    codec, shape = CODECS[name], (3, 10, 192)
    assert stored_bytes(codec, shape) == codec.encode(torch.randn(shape)).nbytes


def test_bytes_of_a_released_expert_tensor() -> None:
    weights = 128 * 1408 * 2816
    assert stored_bytes(CODECS["nf4"], (128, 1408, 2816)) == weights * 17 // 32
    assert stored_bytes(CODECS["int8"], (128, 1408, 2816)) == weights * 33 // 32
