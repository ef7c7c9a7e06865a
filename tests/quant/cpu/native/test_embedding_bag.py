"""Weighted sums of rows by the kernel against the same in fp64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded
from quant.cpu.native.embedding_bag import NativeEmbeddingBag
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import decoded, native_library, random_weights
from tests.models.native import needs_native

pytestmark = needs_native
ROWS = 50


@pytest.fixture(scope="module")
def embedding_bag() -> NativeEmbeddingBag:
    library = native_library()
    assert isinstance(library, NativeLibrary)
    return library.embedding_bag


def table(groups: int = 3, seed: int = 0) -> Encoded:
    return random_weights("int8", (1, ROWS, groups * GROUP), torch.Generator().manual_seed(seed))[0]


def expected_of(stored: Encoded, ids: Tensor, weights: Tensor) -> Tensor:
    return (weights.double()[:, None] @ decoded("int8", stored)[ids]).squeeze(1)


@settings(max_examples=40)
@given(count=st.integers(1, 9), kept=st.integers(1, 40), groups=st.integers(1, 6), seed=st.integers(0, 99))
def test_sums_are_those_of_the_decoded_rows(
    embedding_bag: NativeEmbeddingBag, count: int, kept: int, groups: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    stored = table(groups, seed)
    ids = torch.randint(0, ROWS, (count, kept), generator=generator)  # also the same id twice
    weights = torch.randn(count, kept, generator=generator)
    sums, expected = embedding_bag(stored, ids, weights), expected_of(stored, ids, weights)
    assert sums.dtype == torch.float32
    # Of what is added up: where terms cancel, a sum may be far smaller than they are.
    terms = expected_of(Encoded(codes=stored.codes.abs(), scales=stored.scales.abs()), ids, weights.abs())
    assert bool(((sums - expected).abs() <= 1e-5 * terms).all())


def test_the_same_bits_with_any_number_of_threads(
    embedding_bag: NativeEmbeddingBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, weights = torch.arange(ROWS * 12).view(30, 20) % ROWS, torch.rand(30, 20)
    alone = embedding_bag(table(), ids, weights)
    monkeypatch.setattr("quant.cpu.native.embedding_bag.MIN_PRODUCTS_PER_THREAD", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(embedding_bag(table(), ids, weights), alone)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)], ids=str)
def test_nothing_to_add(embedding_bag: NativeEmbeddingBag, shape: tuple[int, int]) -> None:
    sums = embedding_bag(table(), torch.zeros(shape, dtype=torch.int64), torch.zeros(shape))
    assert torch.equal(sums, torch.zeros(shape[0], 3 * GROUP))


def test_a_weight_that_is_no_number_spoils_its_own_sum_alone(embedding_bag: NativeEmbeddingBag) -> None:
    weights = torch.tensor([[1.0, 2.0], [torch.nan, 2.0]])
    sums = embedding_bag(table(), torch.tensor([[1, 2], [3, 4]]), weights)
    assert bool(sums[0].isfinite().all() and sums[1].isnan().all())


IDS = torch.tensor([[0, ROWS - 1]])


@pytest.mark.parametrize(
    ("stored", "ids", "weights", "words"),
    [
        (table(), torch.tensor([[0, ROWS]]), torch.ones(1, 2), "ids should be from 0 to 49"),
        (table(), torch.tensor([[0, -1]]), torch.ones(1, 2), "ids should be from 0 to 49"),
        (table(), IDS.int(), torch.ones(1, 2), "should be int64 and fp32"),
        (table(), IDS, torch.ones(1, 2).bfloat16(), "should be int64 and fp32"),
        (table(), IDS, torch.ones(1, 3), "should be int64 and fp32"),
        (table(), IDS[0], torch.ones(2), "should be int64 and fp32"),
        (table(), torch.zeros(2, 2, dtype=torch.int64).t(), torch.ones(2, 2), "should be contiguous"),
        (Encoded(codes=table().codes[:, ::2], scales=table().scales), IDS, torch.ones(1, 2), "should be contiguous"),
        (Encoded(codes=table().codes.view(torch.uint8), scales=table().scales), IDS, torch.ones(1, 2), "int8"),
        (Encoded(codes=table().codes, scales=table().scales.float()), IDS, torch.ones(1, 2), "int8"),
        (Encoded(codes=table().codes, scales=table().scales[1:]), IDS, torch.ones(1, 2), "do not belong"),
    ],
)
def test_nothing_is_read_beyond_its_end(
    embedding_bag: NativeEmbeddingBag, stored: Encoded, ids: Tensor, weights: Tensor, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        embedding_bag(stored, ids, weights)
