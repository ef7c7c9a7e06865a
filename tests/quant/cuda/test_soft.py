"""Self-conditioning over probable ids, against the dense product over all ids."""

from __future__ import annotations

import pytest
import torch

from quant.codecs import CODECS
from quant.cuda import soft as module
from quant.cuda.soft import CAPACITY, SparseSoft
from quant.modules import QuantEmbedding, QuantTensor
from tests.gpu.kernels import DEVICE, assert_rounded_alike, needs_triton

pytestmark = needs_triton

VOCAB, WIDTH, ROWS = 700, 128, 5


def embedding(dtype: torch.dtype = torch.float32, width: int = WIDTH) -> QuantEmbedding:
    with torch.device("meta"):
        made = QuantEmbedding(CODECS["int8"], VOCAB, width, dtype)
    weight = torch.randn(VOCAB, width, generator=torch.Generator().manual_seed(0))
    made.weight = QuantTensor.of(CODECS["int8"], weight.to(DEVICE))
    return made


def logits(sharpness: float) -> torch.Tensor:
    return sharpness * torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def test_the_error_is_within_the_tail() -> None:
    plain, scores = embedding(), logits(6.0)
    normalizer = scores.logsumexp(dim=-1)
    found = SparseSoft(plain, threshold=1e-3)(scores, normalizer, block=256)
    expected = plain.soft(scores, normalizer)
    probs = scores.softmax(dim=-1)
    tail = torch.where(probs > 1e-3, 0.0, probs).sum(dim=-1)
    assert tail.min() > 1e-4, "there is a tail to be approximated"
    torch.testing.assert_close(found.tail, tail, atol=1e-5, rtol=1e-3)
    assert not found.overflow.any()
    matrix = plain.weight.decode(torch.float32)
    farthest = (matrix - matrix.mean(dim=0)).norm(dim=-1).max()
    assert ((found.embedding - expected).norm(dim=-1) <= tail * farthest + 1e-4).all()
    without_tail = SparseSoft(plain, threshold=0.0)
    if VOCAB > CAPACITY:
        assert without_tail(scores, normalizer, block=256).overflow.all()


def test_of_a_certain_row_nothing_is_left_out() -> None:
    plain, scores = embedding(), logits(1.0)
    scores[:, 650] = 200.0
    normalizer = scores.logsumexp(dim=-1)
    found = SparseSoft(plain)(scores, normalizer, block=256)
    torch.testing.assert_close(found.embedding, plain.soft(scores, normalizer), atol=1e-5, rtol=1e-5)
    assert not found.tail.any()


@pytest.mark.parametrize("block", [64, 256, 4096])
def test_where_no_id_is_probable_it_is_the_mean_embedding(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    plain, scores = embedding(), logits(0.0)
    found = SparseSoft(plain, threshold=1e-2)(scores, scores.logsumexp(dim=-1), block=256)
    mean = plain.weight.decode(torch.float32).mean(dim=0).expand(ROWS, WIDTH)
    torch.testing.assert_close(found.embedding, mean, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(found.tail, torch.ones_like(found.tail))


def test_rows_with_too_many_probable_ids_are_told() -> None:
    plain, scores = embedding(), logits(0.1)
    scores[2, 100] = 50.0
    normalizer = scores.logsumexp(dim=-1)
    found = SparseSoft(plain)(scores, normalizer, block=256)
    assert found.overflow.tolist() == [True, True, False, True, True]
    expected = plain.soft(scores[2:3], normalizer[2:3])
    torch.testing.assert_close(found.embedding[2:3], expected, atol=1e-5, rtol=1e-5, msg="of a row between such rows")


@pytest.mark.parametrize("more", [0, 1])
def test_there_is_room_for_as_many_ids_as_it_is_said(more: int) -> None:
    plain, scores = embedding(), torch.full((1, VOCAB), -50.0, device=DEVICE)
    scores[0, VOCAB - CAPACITY - more :] = 0.0
    normalizer = scores.logsumexp(dim=-1)
    found = SparseSoft(plain)(scores, normalizer, block=256)
    assert found.overflow.tolist() == [bool(more)]
    if not more:
        torch.testing.assert_close(found.embedding, plain.soft(scores, normalizer), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [64, 256, 320])
def test_it_rounds_what_the_dense_product_rounds(width: int) -> None:
    """It rounds probabilities and embeddings to their type."""
    plain, scores = embedding(dtype=torch.float16, width=width), logits(9.0)
    scores = scores.where(scores > scores.amax(dim=-1, keepdim=True) - 12, -1e4).half()
    normalizer = scores.float().logsumexp(dim=-1)
    found, expected = SparseSoft(plain, threshold=1e-7)(scores, normalizer), plain.soft(scores, normalizer)
    torch.testing.assert_close(found.embedding, expected, atol=2e-3, rtol=2e-3)
    assert_rounded_alike(found.embedding, expected)


def test_rows_of_logits_may_have_gaps_between_them() -> None:
    plain, wide = embedding(), torch.cat((logits(6.0), logits(1.0)), dim=-1)
    apart, together = wide[:, :VOCAB], logits(6.0)
    found, expected = (SparseSoft(plain)(x, together.logsumexp(dim=-1), block=256) for x in (apart, together))
    assert torch.equal(found.embedding, expected.embedding) and torch.equal(found.tail, expected.tail)


def test_strided_arguments_give_the_same() -> None:
    sparse, scores = SparseSoft(embedding(), threshold=1e-3), logits(6.0)
    normalizer = scores.logsumexp(dim=-1)
    expected = sparse(scores, normalizer)
    strided = torch.stack((normalizer, normalizer + 1), dim=-1)[:, 0]
    found = sparse(scores.T.contiguous().T, strided)
    assert torch.equal(found.embedding, expected.embedding)
