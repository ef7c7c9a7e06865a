"""One pass at a time, in fp32 on the CPU: keys, values and logits equal the reference's within 1e-4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from localdiff.model.cache import KVCache
from tests.localdiff.parity.configurations import CONFIGURATIONS
from tests.localdiff.parity.conftest import MakePair, Pair

TOLERANCE = 1e-4
PROMPT = 37
LENGTHS = (1, 7, 8, PROMPT)  # within the window of 8, all that its ring holds, on its edge, and far past it
CHUNKS = (5, 1, 2, 13, 7, 9)  # shorter and longer than the ring
STEPS = 2

pytestmark = pytest.mark.parametrize("name", CONFIGURATIONS)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def pair(name: str, make_pair: MakePair) -> Pair:
    return make_pair(CONFIGURATIONS[name])


def test_keys_and_values_of_every_layer_match_after_every_chunk(pair: Pair) -> None:
    ids = pair.ids(PROMPT, seed=1)
    written = pair.reference.encode(ids).written
    cache = pair.cache()
    for chunk in ids.split(CHUNKS):
        pair.model.encode(chunk, cache)
        _assert_cache_holds(cache, written)
    assert cache.length == PROMPT


def test_a_whole_prefill_and_logits_with_and_without_self_conditioning_match(pair: Pair) -> None:
    for length in LENGTHS:
        ids = pair.ids(length, seed=length)
        cache, reference_cache = pair.cache(), pair.reference.encode(ids)
        pair.model.encode(ids, cache)
        _assert_cache_holds(cache, reference_cache.written)
        _assert_steps_match(pair, cache, reference_cache, seed=length)


def test_logits_match_after_a_chunked_prefill(pair: Pair) -> None:
    ids = pair.ids(PROMPT, seed=2)
    cache = pair.cache()
    for chunk in ids.split(CHUNKS):
        pair.model.encode(chunk, cache)
    _assert_steps_match(pair, cache, pair.reference.encode(ids), seed=3)


def test_commit_and_canvas_rows_together_equal_the_two_passes_apart(pair: Pair) -> None:
    canvas = pair.ids(pair.spec.canvas, seed=4)
    for length in LENGTHS:
        ids = pair.ids(length + pair.spec.canvas, seed=length)
        commit = ids[length:]
        together, apart = pair.cache(), pair.cache()
        pair.model.encode(ids[:length], together)
        pair.model.encode(ids[:length], apart)
        soft = pair.soft(pair.capped(pair.model.denoise(canvas, apart)) / 0.7)

        hidden = pair.model(commit, canvas, together, soft)
        pair.model.encode(commit, apart)
        expected = pair.model(commit[:0], canvas, apart, soft)

        _assert_close(hidden, expected, f"hidden states after {length}")
        assert together.length == apart.length == len(ids)
        _assert_cache_holds(together, pair.reference.encode(ids).written)


def _assert_cache_holds(cache: KVCache, written: list[tuple[Tensor, Tensor]]) -> None:
    """Every slot of every layer equals what the reference wrote at the slot's position."""
    assert len(cache.layers) == len(written)
    for index, (layer, expected) in enumerate(zip(cache.layers, written, strict=True)):
        positions = layer.positions(cache.length)
        kept = cache.length if layer.window is None else min(cache.length, layer.window - 1)
        assert sorted(positions.tolist()) == list(range(cache.length - kept, cache.length))
        for side, ours, theirs in zip("KV", layer.read(cache.length), expected, strict=True):
            _assert_close(ours, theirs[:, positions], f"{side} of layer {index} at length {cache.length}")


def _assert_steps_match(pair: Pair, cache: KVCache, reference_cache: object, seed: int) -> None:
    """Denoise steps over fresh canvases, the first without self-conditioning; both sides get the same inputs."""
    has_cap = pair.spec.soft_cap is not None
    fed: Tensor | None = None
    for step in range(STEPS):
        canvas = pair.ids(pair.spec.canvas, seed=100 * seed + step)
        soft = None if fed is None else pair.soft(fed)
        ours = pair.capped(pair.model.denoise(canvas, cache, soft))
        theirs = pair.reference.logits(canvas, reference_cache, fed, cap=has_cap)
        _assert_close(ours, theirs, f"logits of step {step + 1} at length {cache.length}")
        assert theirs.std() > 1, "flat logits would hide errors"
        fed = theirs / (0.8 - 0.1 * step)
    assert cache.length == reference_cache.get_seq_length()


def _assert_close(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert ours.shape == theirs.shape, what
    worst = (ours - theirs).abs().max().item() if ours.numel() else 0.0
    assert worst <= TOLERANCE, f"{what}: off by {worst:.2e}"
