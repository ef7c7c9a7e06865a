"""The tied embedding of a card against the plain one: head, lookup, and the mean embedding over all ids."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.codecs import CODECS
from quant.codecs.codec import GROUP
from quant.cuda import embedding as module
from quant.cuda import tiles
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.rows import quantize_groups
from quant.cuda.tiles import Tile
from quant.modules import QuantEmbedding, QuantTensor
from quant.modules.embedding import probabilities
from tests.gpu.kernels import DEVICE, HALVES, HAS_CARD, assert_rounded_alike, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

WIDTH = 128
TOLERANCE = {
    torch.float32: {"atol": 1e-6, "rtol": 2e-5},
    torch.float16: {"atol": 2e-4, "rtol": 2e-3},
    torch.bfloat16: {"atol": 2e-3, "rtol": 1.6e-2},
}
# The interpreter multiplies bf16 matrices wrongly.
DTYPES = [torch.float32, *HALVES]


def plain_embedding(vocab_size: int, dtype: torch.dtype = torch.float32, width: int = WIDTH) -> QuantEmbedding:
    with torch.device("meta"):
        plain = QuantEmbedding(CODECS["int8"], vocab_size, width, dtype)
    weight = torch.randn(vocab_size, width, generator=torch.Generator().manual_seed(4))
    plain.weight = QuantTensor.of(CODECS["int8"], weight.to(DEVICE))
    return plain


def random_logits(rows: int, vocab_size: int, *, spread: float = 4.0, seed: int = 5) -> torch.Tensor:
    return spread * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def normalizer_of(logits: torch.Tensor) -> torch.Tensor:
    return logits.float().logsumexp(dim=-1)


def random_probs(rows: int, vocab_size: int, *, spread: float = 4.0, dtype: torch.dtype = torch.float32) -> Any:
    logits = random_logits(rows, vocab_size, spread=spread)
    return probabilities(logits, normalizer_of(logits), dtype)


def test_the_head_reads_the_embedding_as_it_is_stored() -> None:
    plain = plain_embedding(192)
    fast = CudaEmbedding(plain)
    hidden = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(6)).to(DEVICE)
    torch.testing.assert_close(fast.logits(hidden), plain.logits(hidden), atol=2e-5, rtol=2e-5)
    ids = torch.tensor([3, 191], device=DEVICE)
    assert torch.equal(fast.lookup(ids), plain.lookup(ids))
    assert fast.weight is plain.weight
    assert (fast.path, fast.soft_path) == ("w8a16, Triton", "soft embedding w8a16, Triton")


@pytest.mark.parametrize("kind", ["mma.sync", "wgmma"])
@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_with_activations_in_int8_the_head_rounds_nothing_else(
    dtype: torch.dtype, count: int, kind: tiles.MmaKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not HAS_CARD:
        monkeypatch.setattr(tiles, "mma_kind", lambda _: kind)
    plain = plain_embedding(192, dtype)
    fast = CudaEmbedding(plain, "a8")
    hidden = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(6)).to(DEVICE, dtype)
    rounded = quantize_groups(hidden)
    expected = (rounded.codes.float() * rounded.scales.repeat_interleave(GROUP, dim=1)) @ plain.weight.decode(
        torch.float32
    ).T
    tolerance = 2e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(fast.logits(hidden).float(), expected, atol=tolerance, rtol=tolerance)
    assert (fast.path, fast.soft_path) == ("w8a8, Triton", "soft embedding w8a16, Triton")
    probs = random_probs(3, 192, dtype=dtype)
    assert torch.equal(fast.mean(probs), CudaEmbedding(plain).mean(probs)), "probabilities are not rounded"


def test_for_many_rows_the_matrix_is_never_decoded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quant.cuda.linear.MAX_ROWS", 4)
    monkeypatch.setattr(QuantEmbedding, "chunk", 64)
    plain = plain_embedding(192)
    fast, decode, decoded = CudaEmbedding(plain), QuantTensor.decode, list[torch.Size]()

    def seen(*what: Any) -> torch.Tensor:
        weights = decode(*what)
        decoded.append(weights.shape)
        return weights

    monkeypatch.setattr(QuantTensor, "decode", seen)
    hidden = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(6)).to(DEVICE)
    found = fast.logits(hidden)
    assert decoded == [(64, WIDTH)] * 3
    torch.testing.assert_close(found, plain.logits(hidden), atol=0, rtol=0)
    assert not fast.logits(hidden[:4]).isnan().any() and len(decoded) == 6, "few rows decode nothing"


@given(
    rows=st.sampled_from([0, 1, 16, 17, 40]),
    vocab_size=st.integers(1, 700),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_the_mean_embedding_is_the_plain_one(
    rows: int, vocab_size: int, spread: float, dtype: torch.dtype, seed: int
) -> None:
    """Even if the vocabulary does not divide into programs, or one id has all of the probability."""
    plain = plain_embedding(vocab_size, dtype)
    logits = random_logits(rows, vocab_size, spread=spread, seed=seed).to(dtype)
    probs = probabilities(logits, normalizer_of(logits), dtype)
    fast = CudaEmbedding(plain)
    found = fast.mean(probs)
    assert found.shape == (rows, WIDTH) and found.dtype == dtype
    expected = plain.mean(probs)
    torch.testing.assert_close(found, expected, **TOLERANCE[dtype])
    if rows > 1:  # with the few numbers of one row, more than one in twenty may differ by chance
        assert_rounded_alike(found, expected)
    assert torch.equal(fast.soft(logits, normalizer_of(logits)), found)


@pytest.mark.parametrize("vocab_size", [256, 300])
def test_from_logits_it_is_summed_in_pieces(vocab_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probabilities of all ids never exist at once."""
    plain, logits, made = plain_embedding(vocab_size), random_logits(3, vocab_size), list[torch.Size]()

    def seen(part: torch.Tensor, *how: Any) -> torch.Tensor:
        made.append(part.shape)
        return probabilities(part, *how)

    monkeypatch.setattr(module, "PIECE", 128)
    monkeypatch.setattr(module, "probabilities", seen)
    found = CudaEmbedding(plain).soft(logits, normalizer_of(logits))
    assert sum(shape[1] for shape in made) == vocab_size and max(shape[1] for shape in made) == 128
    torch.testing.assert_close(found, plain.soft(logits, normalizer_of(logits)), atol=1e-6, rtol=2e-5)


def test_logits_far_below_zero_are_as_good_as_others() -> None:
    """In a last program that is not full, ids that do not exist must not contribute."""
    fast, logits = CudaEmbedding(plain_embedding(300)), random_logits(3, 300)
    found = fast.soft(logits - 256, normalizer_of(logits) - 256)
    torch.testing.assert_close(found, fast.soft(logits, normalizer_of(logits)), atol=1e-4, rtol=1e-3)


def test_a_certain_id_gives_its_own_embedding() -> None:
    plain = plain_embedding(300)
    certain = torch.tensor([0, 63, 64, 299], device=DEVICE)
    logits = torch.full((4, 300), -1e4, device=DEVICE)
    logits[torch.arange(4, device=DEVICE), certain] = 7.0
    found = CudaEmbedding(plain).soft(logits, normalizer_of(logits))
    torch.testing.assert_close(found, plain.lookup(certain), atol=1e-6, rtol=1e-6)


def test_rows_may_have_gaps_between_them() -> None:
    fast, wide = CudaEmbedding(plain_embedding(192)), random_probs(5, 400)
    part = wide[:, :192]
    assert torch.equal(fast.mean(part), fast.mean(part.contiguous()))


def test_columns_may_have_gaps_between_them_too() -> None:
    fast, logits = CudaEmbedding(plain_embedding(192)), random_logits(5, 192)
    probs, normalizer = probabilities(logits, normalizer_of(logits), torch.float32), normalizer_of(logits)
    apart = [numbers.T.contiguous().T for numbers in (probs, logits)]
    assert all(numbers.stride(1) != 1 for numbers in apart)
    assert torch.equal(fast.mean(apart[0]), fast.mean(probs))
    assert torch.equal(fast.soft(apart[1], normalizer), fast.soft(logits, normalizer))


@pytest.mark.parametrize("shares", [1, 3, 100])
def test_shares_of_the_vocabulary_add_up(shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, probs = plain_embedding(640), random_probs(3, 640)
    monkeypatch.setattr(module, "SHARES", shares)
    found = CudaEmbedding(plain).mean(probs)
    torch.testing.assert_close(found, plain.mean(probs), atol=1e-6, rtol=2e-5)


@pytest.mark.parametrize("width", [128, 192])
@pytest.mark.parametrize("vocab_size", [640, 600])
@pytest.mark.parametrize("rows", [1, 16, 17, 40])
def test_two_groups_of_columns_share_their_probabilities(
    rows: int, vocab_size: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the width has an even number of groups; whether or not a vocabulary divides into what programs read."""
    plain, probs = plain_embedding(vocab_size, width=width), random_probs(rows, vocab_size)
    expected = plain.mean(probs)
    fast, found = CudaEmbedding(plain), []
    for columns in (64, 128):
        monkeypatch.setitem(module.TILES, 4, (Tile(16, 64, 4), Tile(16, columns, 4)))
        found.append(fast.mean(probs))
        torch.testing.assert_close(found[-1], expected, **TOLERANCE[torch.float32])
    assert torch.equal(*found)


def test_it_is_the_same_every_time() -> None:
    fast, probs = CudaEmbedding(plain_embedding(640)), random_probs(3, 640)
    first = fast.mean(probs)
    assert all(torch.equal(fast.mean(probs), first) for _ in range(3))
