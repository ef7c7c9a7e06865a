"""Two-level searches against one-level ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localdiff.diffusion import search
from localdiff.diffusion.search import SEGMENT, argmax, inverse_cumulative

LONG = 128 * SEGMENT


def normal(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("columns", [7, SEGMENT, LONG, LONG + 1, 4 * LONG])
def test_argmax(columns: int) -> None:
    values = normal(5, columns)
    assert torch.equal(argmax(values), values.argmax(dim=-1))


def test_the_first_of_several_largest() -> None:
    values = torch.zeros(3, LONG)
    values[0, [700, 701, 60_000]] = 1.0
    values[1, [511, 512]] = 1.0
    assert argmax(values).tolist() == [700, 511, 0]


@pytest.mark.parametrize("columns", [300, LONG])
def test_shares_of_the_sum_in_fp64(columns: int) -> None:
    weights = normal(64, columns).mul(3).softmax(dim=-1)
    uniforms = torch.rand(64, generator=torch.Generator().manual_seed(1))
    found = inverse_cumulative(weights, uniforms)
    cumulative = weights.double().cumsum(dim=-1)
    share = uniforms.double() * cumulative[:, -1]
    rows = torch.arange(64)
    below = torch.where(found > 0, cumulative[rows, (found - 1).clamp(min=0)], 0.0)
    assert (below <= share + 1e-5).all()
    assert (cumulative[rows, found] >= share - 1e-5).all()


@contextmanager
def two_levels() -> Iterator[None]:
    """Uses two levels for short rows, too, if they divide evenly."""
    before, search._MIN_COLUMNS = search._MIN_COLUMNS, 0
    try:
        yield
    finally:
        search._MIN_COLUMNS = before


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_both_levels_find_what_one_does(seed: int, segments: int) -> None:
    """With integers, whose sums are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(4, (32, segments * SEGMENT), generator=generator).float()
    uniforms = torch.randint(1024, (32,), generator=generator) / 1024
    with two_levels():
        found = inverse_cumulative(weights, uniforms)
    assert torch.equal(found, inverse_cumulative(weights, uniforms))


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0.0, 2**-24, 0.3, 1 - 2**-24]))
def test_a_column_without_weight_is_never_found(seed: int, segments: int, uniform: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(8, segments * SEGMENT, generator=generator) ** 8
    weights[torch.rand(weights.shape, generator=generator) < 0.9] = 0.0
    weights[:, :SEGMENT] *= torch.rand(8, 1, generator=generator) < 0.5  # whole segments of zeros
    weights[:, -3] = 1e-9
    with two_levels():
        found = inverse_cumulative(weights, torch.full((8,), uniform))
    assert (weights[torch.arange(8), found] > 0).all()


def test_every_column_is_found_as_often_as_it_weighs() -> None:
    weights = torch.zeros(1, LONG)
    weights[0, [0, 513, 40_000, LONG - 1]] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    uniforms = (torch.arange(1000) + 0.5) / 1000
    found = inverse_cumulative(weights.expand(1000, -1).contiguous(), uniforms)
    assert torch.bincount(found, minlength=LONG)[[0, 513, 40_000, LONG - 1]].tolist() == [100, 200, 300, 400]


@pytest.mark.parametrize("columns", [7, LONG])
def test_a_row_of_nan_finds_a_column_that_exists(columns: int) -> None:
    """The caller then reports that the logits are not finite; an index out of range would hide that."""
    weights = torch.full((2, columns), torch.nan)
    for found in (argmax(weights), inverse_cumulative(weights, torch.tensor([0.0, 0.5]))):
        assert ((found >= 0) & (found < columns)).all()
