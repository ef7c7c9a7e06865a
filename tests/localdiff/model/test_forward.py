"""One forward over `[commit rows | canvas rows]`: what each part may depend on, and what it must not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.gpu.kernels import DEVICE, needs_triton
from tests.models import tiny

CPU = torch.device("cpu")
TOLERANCE = 1e-4


def random_ids(count: int, seed: int) -> Tensor:
    return torch.randint(tiny.VOCAB_SIZE, (count,), generator=torch.Generator().manual_seed(seed))


CANVAS = random_ids(tiny.CANVAS, seed=2)


@pytest.fixture
def model() -> DiffusionGemma:
    return tiny.model()


def random_soft(model: DiffusionGemma) -> Tensor:
    return torch.randn(tiny.CANVAS, model.config.hidden_size, generator=torch.Generator().manual_seed(4))


def prefilled(model: DiffusionGemma, length: int) -> KVCache:
    cache = KVCache(model.config, 64, torch.float32, CPU)
    model.encode(random_ids(length, seed=1), cache)
    return cache


def contents(cache: KVCache) -> list[Tensor]:
    return [part.clone() for layer in cache.layers for part in layer.read(cache.length)]


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 31])
@pytest.mark.parametrize("commit", [1, 5, 6, 13])
@pytest.mark.parametrize("conditioned", [False, True])
def test_together_equals_apart_around_the_edge_of_the_ring(
    model: DiffusionGemma, length: int, commit: int, conditioned: bool
) -> None:
    ids = random_ids(commit, seed=3)
    together, apart = prefilled(model, length), prefilled(model, length)
    soft = random_soft(model) if conditioned else None
    hidden = model(ids, CANVAS, together, soft)
    model.encode(ids, apart)
    assert_close(hidden, model(ids[:0], CANVAS, apart, soft))
    assert together.length == apart.length == length + commit
    for ours, theirs in zip(contents(together), contents(apart), strict=True):
        assert_close(ours, theirs)
    again = prefilled(model, length)
    assert torch.equal(model.denoise(CANVAS, again, soft, ids), model.embed_tokens.logits(hidden))
    assert again.length == together.length


def test_the_same_step_twice_gives_the_same_bits(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    assert torch.equal(model.denoise(CANVAS, cache), model.denoise(CANVAS, cache))


def test_commit_rows_do_not_see_the_canvas(model: DiffusionGemma) -> None:
    ids, caches = random_ids(5, seed=3), [prefilled(model, 9), prefilled(model, 9)]
    for cache, canvas in zip(caches, (CANVAS, CANVAS.flip(0)), strict=True):
        model(ids, canvas, cache)
    for one, other in zip(*map(contents, caches), strict=True):
        assert_close(one, other)


def test_canvas_rows_see_both_ways(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    before = model.denoise(CANVAS, cache)
    for place in (0, tiny.CANVAS - 1):
        other = CANVAS.clone()
        other[place] = (other[place] + 1) % tiny.VOCAB_SIZE
        moved = (model.denoise(other, cache) - before).abs().amax(dim=-1)
        assert (moved > 1e-3).all()


def test_the_prompt_is_seen_beyond_the_ring_by_full_layers(model: DiffusionGemma) -> None:
    first, second = random_ids(30, seed=1), random_ids(30, seed=1)
    second[0] = (second[0] + 1) % tiny.VOCAB_SIZE
    logits = []
    for ids in (first, second):
        cache = KVCache(model.config, 64, torch.float32, CPU)
        model.encode(ids, cache)
        logits.append(model.denoise(CANVAS, cache))
    assert (logits[0] - logits[1]).abs().max() > 1e-3


def test_each_kind_of_row_has_its_own_layer_scalar(model: DiffusionGemma) -> None:
    cache = prefilled(model, 9)
    written, believed = contents(cache), model.denoise(CANVAS, cache)
    for layer in model.layers:
        layer.encoder_layer_scalar.mul_(1.5)
    assert torch.equal(model.denoise(CANVAS, cache), believed)
    assert (contents(prefilled(model, 9))[-1] - written[-1]).abs().max() > 0.01
    for layer in model.layers:
        layer.encoder_layer_scalar.div_(1.5)
        layer.layer_scalar.mul_(1.5)
    for ours, theirs in zip(contents(prefilled(model, 9)), written, strict=True):
        assert_close(ours, theirs)
    assert (model.denoise(CANVAS, cache) - believed).abs().max() > 0.01


def test_self_conditioning_belongs_to_canvas_rows_alone(model: DiffusionGemma) -> None:
    ids, caches = random_ids(5, seed=3), [prefilled(model, 9), prefilled(model, 9)]
    soft = random_soft(model)
    plain, conditioned = (model(ids, CANVAS, cache, belief) for cache, belief in zip(caches, (None, soft), strict=True))
    assert (plain - conditioned).abs().max() > 0.01
    for one, other in zip(*map(contents, caches), strict=True):
        assert_close(one, other)


def test_the_soft_embedding_of_a_certainty_is_the_embedding(model: DiffusionGemma) -> None:
    logits = torch.full((tiny.CANVAS, tiny.VOCAB_SIZE), -1e4)
    logits[torch.arange(tiny.CANVAS), CANVAS] = 0.0
    assert_close(model.soft_embedding(logits, logits.logsumexp(dim=-1)), model.embed(CANVAS))


def test_logits_are_not_capped() -> None:
    model = tiny.model(final_logit_softcapping=0.5)
    assert model.denoise(CANVAS, prefilled(model, 5)).abs().max() > 0.5


def test_without_a_prompt_a_canvas_stands_alone(model: DiffusionGemma) -> None:
    cache = prefilled(model, 0)
    assert cache.length == 0
    assert model.denoise(CANVAS, cache).isfinite().all()


@needs_triton
@given(chunks=st.lists(st.integers(1, 9), min_size=1, max_size=4), canvas=st.integers(0, 4))
@settings(max_examples=10, deadline=None)
def test_through_triton_every_pass_is_the_same(chunks: list[int], canvas: int) -> None:
    """Prompts longer than the ring, in any pieces, with commit and canvas rows together."""
    model = tiny.model().to(DEVICE)
    caches = [KVCache(model.config, 64, torch.float32, DEVICE) for _ in range(2)]
    hidden = []
    for cache, through_triton in zip(caches, (False, True), strict=True):
        model.attends_through_triton = through_triton
        for number, count in enumerate(chunks):
            ids = random_ids(count, seed=number).to(DEVICE)
            last = model(ids, random_ids(canvas, seed=9).to(DEVICE), cache)
        hidden.append(last)
    torch.testing.assert_close(hidden[1], hidden[0], atol=1e-4, rtol=1e-4)
    for ours, theirs in zip(contents(caches[1]), contents(caches[0]), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
