"""One forward over `[commit rows | canvas rows]`, and what each part may and may not depend on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from localdiff.model import attention
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.tiny import random_ids, tiny_cache, tiny_config, tiny_model

WINDOW = 6
CONFIG = tiny_config("ssf", window=WINDOW, canvas=7)
CANVAS = random_ids(7, seed=2)
LENGTHS = [0, 1, WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 31]
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def model() -> DiffusionGemma:
    return tiny_model(CONFIG)


def prefilled(model: DiffusionGemma, length: int) -> KVCache:
    cache = tiny_cache(model.config)
    model.encode(random_ids(length, seed=1), cache)
    return cache


def soft_of(model: DiffusionGemma, cache: KVCache) -> Tensor:
    logits = model.denoise(CANVAS, cache)
    return model.soft_embedding(logits, logits.logsumexp(dim=-1))


def contents(cache: KVCache) -> list[Tensor]:
    return [part.clone() for layer in cache.layers for part in layer.read(cache.length)]


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("commit", [1, 3, WINDOW, 2 * WINDOW + 1])
@pytest.mark.parametrize("conditioned", [False, True])
def test_commit_and_canvas_rows_together_equal_two_passes(
    model: DiffusionGemma, length: int, commit: int, conditioned: bool
) -> None:
    ids = random_ids(commit, seed=3)
    together, apart = prefilled(model, length), prefilled(model, length)
    soft = soft_of(model, apart) if conditioned else None

    hidden = model(ids, CANVAS, together, soft)
    model.encode(ids, apart)
    expected = model(ids[:0], CANVAS, apart, soft)

    assert_close(hidden, expected)
    assert together.length == apart.length == length + commit
    for ours, theirs in zip(contents(together), contents(apart), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("chunk", [1, WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 17])
def test_a_chunked_prefill_loses_nothing_at_the_edge_of_the_ring(model: DiffusionGemma, chunk: int) -> None:
    ids = random_ids(35, seed=1)
    whole, chunked = tiny_cache(CONFIG), tiny_cache(CONFIG)
    model.encode(ids, whole)
    for part in ids.split(chunk):
        model.encode(part, chunked)
        fresh = tiny_cache(CONFIG)
        model.encode(ids[: chunked.length], fresh)
        assert_close(model.denoise(CANVAS, chunked), model.denoise(CANVAS, fresh))
    assert_close(model.denoise(CANVAS, chunked), model.denoise(CANVAS, whole))


def test_streamed_attention_gives_the_same_logits(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.denoise(CANVAS, prefilled(model, 20))
    monkeypatch.setattr(attention, "_MAX_SCORES", 50)
    assert_close(model.denoise(CANVAS, prefilled(model, 20)), whole)


def test_a_denoise_step_leaves_the_cache_as_it_is(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    before = contents(cache)
    model.denoise(CANVAS, cache, soft_of(model, cache))
    assert cache.length == 9
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(contents(cache), before, strict=True))


def test_the_same_step_twice_gives_the_same_bits(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    assert torch.equal(model.denoise(CANVAS, cache), model.denoise(CANVAS, cache))


def test_commit_rows_do_not_see_the_canvas(model: DiffusionGemma) -> None:
    ids = random_ids(5, seed=3)
    caches = [prefilled(model, 9), prefilled(model, 9)]
    for cache, canvas in zip(caches, (CANVAS, CANVAS.flip(0)), strict=True):
        model(ids, canvas, cache)
    assert all(torch.equal(one, other) for one, other in zip(*map(contents, caches), strict=True))


def test_canvas_rows_see_both_ways(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    before = model.denoise(CANVAS, cache)
    for place in (0, len(CANVAS) - 1):
        other = CANVAS.clone()
        other[place] = (other[place] + 1) % CONFIG.vocab_size
        moved = (model.denoise(other, cache) - before).abs().amax(dim=-1)
        assert (moved > 1e-3).all()


def test_each_kind_of_row_has_its_own_layer_scalar(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    written, believed = contents(cache), model.denoise(CANVAS, cache)
    for layer in model.layers:
        layer.encoder_layer_scalar.mul_(1.5)
    assert torch.equal(model.denoise(CANVAS, cache), believed)
    assert not torch.equal(contents(prefilled(model, 9))[-1], written[-1])
    for layer in model.layers:
        layer.encoder_layer_scalar.div_(1.5)
        layer.layer_scalar.mul_(1.5)
    for ours, theirs in zip(contents(prefilled(model, 9)), written, strict=True):
        assert_close(ours, theirs)
    assert (model.denoise(CANVAS, cache) - believed).abs().max() > 0.01


def test_without_a_belief_conditioning_is_that_of_an_empty_one(model: DiffusionGemma) -> None:
    """The norm behind self-conditioning applies on the first step too."""
    cache = prefilled(model, 9)
    nothing = torch.zeros(len(CANVAS), CONFIG.hidden_size)
    assert_close(model.denoise(CANVAS, cache, nothing), model.denoise(CANVAS, cache))
    conditioned = model.self_conditioning.condition(model.embed(CANVAS), None)
    assert_close(conditioned.square().mean(dim=-1), torch.ones(len(CANVAS)))


def test_the_soft_embedding_of_a_certainty_is_the_embedding(model: DiffusionGemma) -> None:
    logits = torch.full((len(CANVAS), CONFIG.vocab_size), -1e4)
    logits[torch.arange(len(CANVAS)), CANVAS] = 0.0
    assert_close(model.soft_embedding(logits, logits.logsumexp(dim=-1)), model.embed(CANVAS))


def test_logits_are_neither_capped_nor_divided() -> None:
    model = tiny_model(tiny_config("ssf", canvas=7, softcap=0.5))
    assert model.denoise(CANVAS, prefilled(model, 5)).abs().max() > 1


def test_the_scale_of_the_embeddings_is_rounded_to_their_type() -> None:
    """√2816 = 53.066, and 53.0 in bf16."""
    model = DiffusionGemma(tiny_config("f", hidden_size=2816, vocab_size=3, num_experts=1, top_k_experts=1))
    model.embed_tokens.weight = torch.nn.Parameter(torch.ones(3, 2816, dtype=torch.bfloat16))
    assert model.embed(torch.tensor([2])).unique().tolist() == [53.0]
    model.embed_tokens.weight = torch.nn.Parameter(torch.ones(3, 2816))
    assert model.embed(torch.tensor([2])).unique().tolist() == [pytest.approx(53.066, abs=1e-3)]


def test_an_empty_pass_over_an_empty_cache(model: DiffusionGemma) -> None:
    cache = tiny_cache(CONFIG)
    model.encode(CANVAS[:0], cache)
    assert cache.length == 0
    assert model.denoise(CANVAS, cache).isfinite().all()
