"""Products of few rows with unquantized weights, in parts of K, against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from quant.cuda.linear import MAX_ROWS
from quant.cuda.split_product import SHARE, can_split, split_product
from tests.gpu.kernels import DEVICE, HALVES, needs_triton


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("outputs", [64, 128])
def test_each_part_is_a_product_over_its_share_of_the_inputs(count: int, outputs: int, dtype: torch.dtype) -> None:
    x, weight = (drawn(size, 3 * SHARE, dtype=dtype) for size in (count, outputs))
    parts = split_product(x, weight)
    assert parts.shape == (3, count, outputs) and parts.dtype == torch.float32
    for part, found in enumerate(parts):
        share = slice(part * SHARE, (part + 1) * SHARE)
        expected = x[:, share].float() @ weight[:, share].float().T  # products of 16 bits are exact in fp32
        torch.testing.assert_close(found, expected, atol=5e-5, rtol=2e-5)


@needs_triton
def test_rows_may_have_gaps_between_them() -> None:
    x, weight = drawn(6, 2 * SHARE), drawn(64, 2 * SHARE)
    assert torch.equal(split_product(torch.cat((x, x), dim=-1)[:, : 2 * SHARE], weight), split_product(x, weight))


@pytest.mark.parametrize(
    ("rows", "weight", "expected"),
    [
        (256, (128, 2816), True),
        (MAX_ROWS, (128, 2816), True),
        (MAX_ROWS + 1, (128, 2816), False),
        (0, (128, 2816), False),
        (256, (100, 2816), False),
        (256, (128, SHARE), False),
        (256, (128, 2 * SHARE + 64), False),
    ],
)
def test_what_can_be_split(rows: int, weight: tuple[int, int], expected: bool) -> None:
    assert can_split(torch.empty(rows, weight[1]), torch.empty(weight)) is expected


def test_weights_of_another_kind_are_left_to_torch() -> None:
    x, weight = torch.empty(256, 2816), torch.empty(128, 2816)
    assert can_split(x, weight)
    assert not can_split(x, torch.empty(2816, 128).T)
    assert not can_split(x, weight.half())
