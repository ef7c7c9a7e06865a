"""Soft embeddings by the kernel, in each form that this CPU runs, against the same in fp64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded
from quant.cpu.native import soft_embedding as module
from quant.cpu.native.correctness import decoded, random_weights
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.soft_embedding import NativeSoftEmbedding
from tests.fakes.threads import torch_threads
from tests.models.native import needs_native

pytestmark = needs_native
IDS = 600
TAIL = 2.0**-10


@pytest.fixture(scope="module")
def soft_embedding(library: NativeLibrary) -> NativeSoftEmbedding:
    return library.soft_embedding


def table(ids: int = IDS, groups: int = 3, seed: int = 0) -> Encoded:
    return random_weights("int8", (1, ids, groups * GROUP), torch.Generator().manual_seed(seed))[0]


def random_logits(rows: int, spread: float, dtype: torch.dtype, *, ids: int = IDS, seed: int = 0) -> Tensor:
    return (torch.randn(rows, ids, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)


def normalizer(logits: Tensor) -> Tensor:
    return logits.float().logsumexp(dim=-1)


def keys(logits: Tensor) -> Tensor:
    """What the kernel compares: bf16 as it is, fp32 without its lower half."""
    return (logits.float().view(torch.int32) & -(1 << 16)).view(torch.float32)


@settings(max_examples=60)
@given(
    rows=st.integers(1, 9),
    ids=st.integers(1, 900),
    groups=st.integers(1, 9),
    spread=st.sampled_from([0.0, 0.3, 2.0, 8.0, 40.0]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    seed=st.integers(0, 99),
)
def test_sums_are_those_of_the_nucleus(
    soft_embedding: NativeSoftEmbedding, rows: int, ids: int, groups: int, spread: float, dtype: torch.dtype, seed: int
) -> None:
    stored, logits = table(ids, groups, seed), random_logits(rows, spread, dtype, ids=ids, seed=seed)
    sums, sizes = soft_embedding(stored, logits, normalizer(logits), tail=TAIL, max_ids=ids)
    assert (sums.dtype, sums.shape) == (torch.float32, (rows, groups * GROUP))
    probs = (logits.double() - normalizer(logits).double()[:, None]).exp()
    least = keys(logits).sort(descending=True).values.gather(1, sizes[:, None] - 1)
    is_inside = keys(logits) >= least
    assert torch.equal(is_inside.sum(dim=-1), sizes)
    assert bool((probs.where(~is_inside, 0.0).sum(dim=-1) < TAIL).all())
    if dtype == torch.bfloat16:  # the nucleus is no larger than necessary
        assert bool((probs.where(keys(logits) <= least, 0.0).sum(dim=-1) >= TAIL * (1 - 1e-6)).all())
    weights = probs.where(is_inside, 0.0)
    # Relative to the terms: if they cancel, the sum may be far smaller than they are.
    terms = weights @ decoded("int8", Encoded(codes=stored.codes.abs(), scales=stored.scales.abs()))
    assert bool(((sums - weights @ decoded("int8", stored)).abs() <= 1e-5 * terms).all())


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_the_same_bits_with_any_number_of_threads(
    soft_embedding: NativeSoftEmbedding, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = random_logits(rows, 2.0, torch.bfloat16)

    def sums() -> Tensor:
        return soft_embedding(table(groups=6), logits, normalizer(logits), tail=TAIL, max_ids=IDS)[0]

    monkeypatch.setattr(module, "MIN_PRODUCTS_PER_THREAD", 1 << 62)
    alone = sums()
    monkeypatch.setattr(module, "MIN_PRODUCTS_PER_THREAD", 1)
    with torch_threads(3):
        for panels in (1, 3, 50):
            monkeypatch.setattr(module, "PANELS_PER_THREAD", panels)
            assert torch.equal(sums(), alone)


def test_rows_of_more_ids_than_are_wanted_are_left_out(soft_embedding: NativeSoftEmbedding) -> None:
    logits = torch.full((4, IDS), -60.0)
    for row, ids in enumerate((20, 21, 1, IDS)):
        logits[row, :ids] = 1.0
    sums, sizes = soft_embedding(table(), logits, normalizer(logits), tail=TAIL, max_ids=20)
    assert sizes.tolist() == [20, 21, 1, IDS]
    assert sums.any(dim=-1).tolist() == [True, False, True, False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("level", [-3000.0, -700.0, 700.0, 708.0, 3000.0])
@pytest.mark.parametrize("flushes", [False, True], ids=["", "denormal numbers are zeros"])
def test_only_differences_of_logits_matter(
    soft_embedding: NativeSoftEmbedding, level: float, dtype: torch.dtype, flushes: bool
) -> None:
    """Low temperatures make logits so large that exp of one of them overflows 64 bits."""
    logits = torch.full((1, IDS), level - 60)
    logits[0, :3] = level
    torch.set_flush_denormal(flushes)
    try:
        sums, sizes = soft_embedding(table(), logits.to(dtype), normalizer(logits.to(dtype)), tail=TAIL, max_ids=IDS)
    finally:
        torch.set_flush_denormal(False)
    assert sizes.tolist() == [3]
    expected = decoded("int8", table())[:3].mean(dim=0)
    assert float((sums[0].double() - expected).norm() / expected.norm()) < 2e-3  # a log-sum-exp of 3000 is rounded


def test_logits_of_minus_infinity_are_never_inside(soft_embedding: NativeSoftEmbedding) -> None:
    logits = torch.full((1, IDS), -torch.inf)
    logits[0, 5] = 2.0
    sums, sizes = soft_embedding(table(), logits, normalizer(logits), tail=TAIL, max_ids=IDS)
    assert sizes.tolist() == [1]
    assert torch.allclose(sums[0].double(), decoded("int8", table())[5])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_spoils_its_own_row_alone(
    soft_embedding: NativeSoftEmbedding, value: float, dtype: torch.dtype
) -> None:
    logits = random_logits(2, 2.0, dtype)
    logits[1, 7] = value
    sums, _ = soft_embedding(table(), logits, normalizer(logits), tail=TAIL, max_ids=IDS)
    assert bool(sums[0].isfinite().all() and sums[1].isnan().all())


def test_what_the_kernel_writes_is_fp32_whatever_is_the_default(soft_embedding: NativeSoftEmbedding) -> None:
    logits = random_logits(3, 2.0, torch.bfloat16)
    arguments = (table(), logits, normalizer(logits))
    expected, _ = soft_embedding(*arguments, tail=TAIL, max_ids=IDS)
    torch.set_default_dtype(torch.float64)  # wider, so that a wrong buffer would be too large, not too small
    try:
        sums, _ = soft_embedding(*arguments, tail=TAIL, max_ids=IDS)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(sums, expected)


def test_no_rows(soft_embedding: NativeSoftEmbedding) -> None:
    sums, sizes = soft_embedding(table(), torch.zeros(0, IDS), torch.zeros(0), tail=TAIL, max_ids=IDS)
    assert (sums.shape, sizes.shape) == ((0, 3 * GROUP), (0,))


LOGITS = torch.zeros(2, IDS)


@pytest.mark.parametrize(
    ("stored", "logits", "log_normalizer", "words"),
    [
        (table(), torch.zeros(2, IDS + 1), torch.zeros(2), "should be bf16 or fp32"),
        (table(), LOGITS.half(), torch.zeros(2), "should be bf16 or fp32"),
        (table(), LOGITS[0], torch.zeros(2), "should be bf16 or fp32"),
        (table(), LOGITS, torch.zeros(3), "do not belong to logits"),
        (table(), torch.zeros(IDS, 2).t(), torch.zeros(2), "should be contiguous"),
        (Encoded(codes=table().codes[:, ::2], scales=table().scales), LOGITS, torch.zeros(2), "should be contiguous"),
        (Encoded(codes=table().codes.view(torch.uint8), scales=table().scales), LOGITS, torch.zeros(2), "int8"),
        (Encoded(codes=table().codes, scales=table().scales.float()), LOGITS, torch.zeros(2), "int8"),
        (Encoded(codes=table().codes, scales=table().scales[1:]), LOGITS, torch.zeros(2), "do not belong to codes"),
    ],
)
def test_arguments_that_do_not_belong_together_are_refused(
    soft_embedding: NativeSoftEmbedding, stored: Encoded, logits: Tensor, log_normalizer: Tensor, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        soft_embedding(stored, logits, log_normalizer, tail=TAIL, max_ids=IDS)
