"""Rows as int8: the limit of each row's error, whatever its largest value."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quant.cpu.rows import LIMIT, MAX_CODE, quantize_rows


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def errors(x: Tensor) -> Tensor:
    """Relative error of each row."""
    return (quantize_rows(x).decode() - x.float()).norm(dim=-1) / x.float().norm(dim=-1)


def peaked(rows: int, columns: int, peak: float) -> Tensor:
    """Rows with one channel that is `peak` times as large as the others on average."""
    x = normal(rows, columns)
    x[:, 3] = peak
    return x


def test_normal_rows_take_one_pass() -> None:
    x = normal(32, 2816)
    rows = quantize_rows(x)
    assert rows.residual is None
    assert int(rows.codes.abs().max()) == MAX_CODE
    assert float(errors(x).max()) < 0.015


@pytest.mark.parametrize("peak", [5.0, 12.0, 60.0, 1000.0])
def test_no_row_is_coarser_than_the_limit(peak: float) -> None:
    x = peaked(16, 2816, peak)
    assert float(errors(x).max()) < LIMIT * 1.1


def test_only_rows_that_need_it_have_a_rest() -> None:
    x = normal(6, 512)
    x[[1, 4], 7] = 80.0
    rows = quantize_rows(x)
    assert rows.residual_rows.tolist() == [1, 4]
    assert rows.residual is not None and rows.residual.codes.shape == (2, 512)
    assert float(errors(x)[[1, 4]].max()) < 0.001


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types(dtype: torch.dtype) -> None:
    x = normal(4, 128).to(dtype)
    rows = quantize_rows(x)
    assert (rows.codes.dtype, rows.scales.dtype) == (torch.int8, torch.float32)
    assert float(errors(x).max()) < LIMIT


def test_zeros_and_tiny_rows() -> None:
    x = torch.stack([torch.zeros(64), torch.full((64,), 1e-40), torch.full((64,), -1e-20)])
    decoded = quantize_rows(x).decode()
    assert torch.equal(decoded[:2], torch.zeros(2, 64))
    assert torch.allclose(decoded[2], x[2])


def test_no_rows() -> None:
    rows = quantize_rows(torch.zeros(0, 64))
    assert rows.decode().shape == (0, 64)


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.booleans(), min_size=10, max_size=10))
def test_taking_rows_is_taking_decoded_rows(numbers: list[int], outlying: list[bool]) -> None:
    x = normal(10, 256)
    x[torch.tensor(outlying), 5] = 90.0
    rows = quantize_rows(x)
    chosen = torch.tensor(numbers, dtype=torch.int64)
    taken = rows.take(chosen)
    assert torch.equal(taken.decode(), rows.decode()[chosen])
    assert taken.residual_rows.tolist() == [place for place, number in enumerate(numbers) if outlying[number]]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_splitting_rows_is_splitting_decoded_rows(counts: list[int], data: st.DataObject) -> None:
    total = sum(counts)
    x = normal(total, 256)
    outlying = data.draw(st.lists(st.booleans(), min_size=total, max_size=total))
    x[torch.tensor(outlying, dtype=torch.bool), 5] = 90.0
    rows = quantize_rows(x)
    parts = rows.split(counts)
    assert [len(part.codes) for part in parts] == counts
    assert torch.equal(torch.cat([part.decode() for part in parts]), rows.decode())
