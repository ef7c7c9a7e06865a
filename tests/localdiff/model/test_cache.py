"""The cache: whatever was written, snapshotted and rewound, it equals a fresh prefill of the ids that it stands for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.model.cache import MAX_SNAPSHOTS, KVCache, LayerCache
from localdiff.model.config import LayerConfig, ModelConfig, RopeConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.checkpoints.released import released_config
from tests.models import tiny
from tests.models.held import held_by_cache

CPU = torch.device("cpu")
IDS = torch.randint(tiny.VOCAB_SIZE, (64,), generator=torch.Generator().manual_seed(1))
CANVAS = torch.randint(tiny.VOCAB_SIZE, (tiny.CANVAS,), generator=torch.Generator().manual_seed(2))
MODEL = tiny.model()
RING = MODEL.config.sliding_window - 1


def new_cache(capacity: int = 64) -> KVCache:
    return KVCache(MODEL.config, capacity, torch.float32, CPU)


def prefilled(length: int, chunk: int = 64) -> KVCache:
    cache = new_cache()
    for start in range(0, length, chunk):
        MODEL.encode(IDS[start : min(start + chunk, length)], cache)
    return cache


def assert_same(cache: KVCache, fresh: KVCache, model: DiffusionGemma = MODEL) -> None:
    assert cache.length == fresh.length
    for ours, theirs in zip(cache.layers, fresh.layers, strict=True):
        order, expected = (layer.positions(cache.length).argsort() for layer in (ours, theirs))
        for mine, other in zip(ours.read(cache.length), theirs.read(cache.length), strict=True):
            torch.testing.assert_close(mine[:, order], other[:, expected], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.denoise(CANVAS, cache), model.denoise(CANVAS, fresh), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("capacity", [1, RING - 1, RING, RING + 1])
def test_no_layer_has_more_room_than_the_whole_cache_or_than_its_window(capacity: int) -> None:
    sliding, full = (
        {layer.slots for layer in new_cache(capacity).layers if bool(layer.window) is ring} for ring in (True, False)
    )
    assert (sliding, full) == ({min(RING, capacity)}, {capacity})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("encode"), st.integers(1, 17)),
            st.tuples(st.just("encode and snapshot"), st.integers(1, 17)),
            st.tuples(st.just("rewind"), st.integers(0, 20)),
        ),
        min_size=4,
        max_size=10,
    )
)
def test_any_history_equals_a_fresh_prefill(history: list[tuple[str, int]]) -> None:
    cache = new_cache()
    snapshots: list[int] = []
    for action, amount in history:
        if action != "rewind":
            MODEL.encode(IDS[cache.length : min(cache.length + amount, 60)], cache)
            if action == "encode and snapshot":
                cache.snapshot()
                snapshots = [*(kept for kept in snapshots if kept != cache.length), cache.length][-MAX_SNAPSHOTS:]
        else:
            wanted = max(cache.length - amount, 0)
            exact = wanted == cache.length or cache.length <= RING
            longest = wanted if exact else max((kept for kept in snapshots if kept <= wanted), default=0)
            kept = cache.rewind(wanted)
            assert kept == cache.length == longest
            snapshots = [length for length in snapshots if length <= kept]
            MODEL.encode(IDS[kept:wanted], cache)
            assert cache.length == wanted
    assert_same(cache, prefilled(cache.length))


@pytest.mark.parametrize("chunk", [1, 2, 5, 6, 7, 64])
def test_a_chunked_prefill_loses_nothing_at_the_edge_of_the_ring(chunk: int) -> None:
    assert_same(prefilled(40, chunk), prefilled(40))


def test_a_rewind_is_exact_where_a_snapshot_was_taken_and_honest_elsewhere() -> None:
    cache = prefilled(20)
    cache.snapshot()
    MODEL.encode(IDS[20:40], cache)
    assert cache.rewind(30) == 20  # the ring of 5 has lost what 30 needs; 20 is the nearest snapshot kept
    assert_same(cache, prefilled(20))
    MODEL.encode(IDS[20:24], cache)
    assert cache.rewind(19) == 0
    assert cache.length == 0


@pytest.mark.parametrize(("length", "kept"), [(RING - 1, 3), (RING, 3), (RING + 1, 0)])
def test_a_rewind_needs_no_snapshot_while_no_ring_has_wrapped(length: int, kept: int) -> None:
    cache = prefilled(length)
    assert cache.rewind(3) == kept
    assert_same(cache, prefilled(kept))


def test_a_rewind_to_where_it_stands_keeps_everything() -> None:
    cache = prefilled(40)
    assert cache.rewind(40) == 40
    assert_same(cache, prefilled(40))


def test_a_snapshot_beyond_a_rewind_is_forgotten() -> None:
    cache = prefilled(10)
    cache.snapshot()
    MODEL.encode(IDS[10:20], cache)
    cache.snapshot()
    cache.rewind(10)
    other = torch.flip(IDS[10:30], [0])
    MODEL.encode(other, cache)
    assert cache.rewind(20) == 10  # the snapshot at 20 belonged to other ids


def test_only_the_newest_snapshots_are_kept() -> None:
    cache = new_cache()
    for start in range(0, 10 * (MAX_SNAPSHOTS + 2), 10):
        MODEL.encode(IDS[start : start + 10], cache)
        cache.snapshot()
    assert cache.rewind(20) == 0  # its snapshot was dropped


def test_a_snapshot_is_a_copy() -> None:
    cache = prefilled(20)
    cache.snapshot()
    held = [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers if layer.window]
    MODEL.encode(IDS[20:40], cache)
    cache.rewind(20)
    for layer, (keys, values) in zip((layer for layer in cache.layers if layer.window), held, strict=True):
        assert torch.equal(layer.keys, keys)
        assert torch.equal(layer.values, values)


def test_a_snapshot_that_is_there_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = prefilled(20)
    cache.snapshot()
    monkeypatch.setattr(LayerCache, "read", lambda *_: pytest.fail("rings are copied once more"))
    cache.snapshot()


def test_a_window_of_one_keeps_nothing_in_its_ring() -> None:
    model = tiny.model(sliding_window=1)
    caches = [KVCache(model.config, 64, torch.float32, CPU) for _ in range(2)]
    model.encode(IDS[:7], caches[0])
    for chunk in IDS[:7].split(2):
        model.encode(chunk, caches[1])
    assert [layer.read(7)[0].shape[1] for layer in caches[0].layers] == [0, 0, 7]
    assert_same(caches[1], caches[0], model)


def test_buffers_are_allocated_once_and_counted() -> None:
    cache = new_cache(capacity=40)
    addresses = [layer.keys.data_ptr() for layer in cache.layers]
    MODEL.encode(IDS[:20], cache)
    MODEL.encode(IDS[20:40], cache)
    cache.snapshot()
    assert [layer.keys.data_ptr() for layer in cache.layers] == addresses
    # K and V, fp32; heads, positions, head size
    assert held_by_cache(cache) == 2 * 4 * (2 * (2 * RING * 8) + 1 * 40 * 16)


@pytest.mark.parametrize("length", [-1, 11])
def test_a_rewind_out_of_range_says_so(length: int) -> None:
    with pytest.raises(ValueError, match=f"rewind length={length} is not within 0..10"):
        prefilled(10).rewind(length)


def test_more_than_the_capacity_is_refused_and_changes_nothing() -> None:
    cache = new_cache(capacity=10)
    MODEL.encode(IDS[:8], cache)
    with pytest.raises(ValueError, match=r"self.length=8 \+ count=3 exceeds self.capacity=10"):
        MODEL.encode(IDS[8:11], cache)
    assert cache.length == 8


def test_a_window_beyond_the_capacity_keeps_all() -> None:
    model = tiny.model(sliding_window=100)
    short = KVCache(model.config, 20, torch.float32, CPU)
    long = KVCache(model.config, 200, torch.float32, CPU)
    for cache in (short, long):
        model.encode(IDS[:18], cache)
    assert_same(short, long, model)


@given(st.integers(1, 9), st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_a_ring_holds_the_newest_positions(slots: int, writes: list[int]) -> None:
    rope = RopeConfig(theta=1e4, rotary_fraction=1.0)
    layer = LayerConfig(head_dim=2, num_kv_heads=1, window=slots + 1, rope=rope)
    ring = LayerCache(layer, 1000, torch.float32, CPU)
    length = 0
    for count in writes:
        rows = torch.arange(length, length + count, dtype=torch.float32)[None, :, None].expand(1, count, 2)
        ring.write(rows, -rows, length)
        length += count
    keys, values = ring.read(length)
    held = ring.positions(length)
    assert sorted(held.tolist()) == list(range(length))[-slots:]
    assert keys[0, :, 0].tolist() == held.tolist()
    assert torch.equal(values, -keys)


def test_32k_of_context_take_at_most_0_9_gb_at_full_size() -> None:
    config = ModelConfig.from_dict(released_config())
    cache = KVCache(config, 32768, torch.bfloat16, torch.device("meta"))
    assert held_by_cache(cache) <= 0.9e9
    assert held_by_cache(cache) == 5 * 2 * 2 * 512 * 2 * 32768 + 25 * 2 * 8 * 256 * 2 * 1023
