"""What a model has read: however it came about, the cache equals a prefill of the ids that it holds."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.engine.prefix_cache import PrefixCache, common_length
from localdiff.model.cache import MAX_SNAPSHOTS, KVCache
from tests.models import tiny
from tests.models.caches import assert_same, prefill

MODEL = tiny.model()
RING = MODEL.config.sliding_window - 1
CPU = torch.device("cpu")
CAPACITY = 64


def new_prefix_cache() -> PrefixCache:
    return PrefixCache(MODEL, CPU)


def reads(prefix_cache: PrefixCache, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the passes that are made from then on."""
    lengths: list[int] = []

    def encode(ids: torch.Tensor, cache: object) -> None:
        lengths.append(len(ids))
        type(MODEL).encode(MODEL, ids, cache)  # type: ignore[arg-type]

    monkeypatch.setattr(MODEL, "encode", encode)
    return lengths


def take_in(prefix_cache: PrefixCache, prompt: Sequence[int], fork: int | None = None) -> int:
    prefix_cache.fork = fork
    held = prefix_cache.start_run(prompt, CAPACITY)
    prefix_cache.encode(prompt[held:])
    return held


some_ids = st.lists(st.integers(9, 11), max_size=15)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), some_ids, st.integers(0, 30), some_ids), min_size=2, max_size=5))
def test_any_prompts_one_after_the_other_equal_a_prefill(
    history: list[tuple[int, list[int], int, list[int]]],
) -> None:
    """Each prompt begins with some of the ids held, so it goes back to forks, too."""
    prefix_cache = new_prefix_cache()
    for keep, more, fork, written in history:
        before = prefix_cache.ids
        prompt = [*before[:keep], *more]
        held = take_in(prefix_cache, prompt, fork)
        assert held <= common_length(before, prompt)
        prefix_cache.encode(written)
        assert prefix_cache.ids == (*prompt, *written)
        assert prefix_cache.kv_cache.length == len(prefix_cache.ids)
        assert_same(MODEL, prefix_cache.kv_cache, prefill(MODEL, prefix_cache.ids, CAPACITY))


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix_cache = new_prefix_cache()
    passes = reads(prefix_cache, monkeypatch)
    assert take_in(prefix_cache, [9] * 20) == 0
    assert take_in(prefix_cache, [9] * 20 + [10] * 3) == 20
    assert take_in(prefix_cache, [9] * 20 + [10] * 3) == 23
    assert passes == [20, 3]


def test_a_fork_costs_one_cut_and_saves_everything_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix_cache = new_prefix_cache()
    passes = reads(prefix_cache, monkeypatch)
    take_in(prefix_cache, [9] * 20, fork=16)
    prefix_cache.encode([10] * 12)  # the ring of five has long lost position 16
    assert take_in(prefix_cache, [9] * 16 + [11] * 4) == 16
    assert passes == [16, 4, 12, 4]
    assert_same(MODEL, prefix_cache.kv_cache, prefill(MODEL, prefix_cache.ids, CAPACITY))


def test_a_fork_at_the_end_of_the_prompt_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix_cache = new_prefix_cache()
    passes = reads(prefix_cache, monkeypatch)
    take_in(prefix_cache, [9] * 20, fork=20)
    prefix_cache.encode([10] * 12)
    assert take_in(prefix_cache, [9] * 20 + [11]) == 20
    assert passes == [20, 12, 1]


def test_a_fork_at_the_end_of_what_is_held_is_kept() -> None:
    prefix_cache = new_prefix_cache()
    take_in(prefix_cache, [9] * 20)
    take_in(prefix_cache, [9] * 20 + [10] * 12, fork=20)
    assert take_in(prefix_cache, [9] * 20 + [11]) == 20


def test_without_a_fork_there_it_begins_anew() -> None:
    prefix_cache = new_prefix_cache()
    take_in(prefix_cache, [9] * 20)
    prefix_cache.encode([10] * 12)
    assert take_in(prefix_cache, [9] * 20 + [11]) == 0
    assert prefix_cache.ids == (*[9] * 20, 11)


def test_as_many_forks_are_kept_as_the_cache_keeps_snapshots() -> None:
    prefix_cache = new_prefix_cache()
    forks = [6 * number for number in range(1, MAX_SNAPSHOTS + 2)]
    for fork in forks:
        take_in(prefix_cache, [9] * fork, fork=fork)
    take_in(prefix_cache, [9] * 40)
    assert take_in(prefix_cache, [9] * forks[-2] + [10]) == forks[-2]
    assert take_in(prefix_cache, [9] * forks[1] + [10]) == forks[1]
    assert take_in(prefix_cache, [9] * forks[0] + [11] + [10] * 9) == 0


@pytest.mark.parametrize("capacity", [15, 17])
def test_another_room_means_reading_again(capacity: int) -> None:
    prefix_cache = new_prefix_cache()
    prefix_cache.start_run([9] * 10, 16)
    prefix_cache.encode([9] * 10)
    assert prefix_cache.start_run([9] * 10, capacity) == 0
    assert prefix_cache.kv_cache.capacity == capacity
    assert prefix_cache.ids == ()


def test_the_old_room_is_freed_before_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both might not fit on the device."""
    prefix_cache = new_prefix_cache()
    prefix_cache.start_run([9] * 10, 16)
    old = weakref.ref(prefix_cache.kv_cache)

    def made(*args: Any) -> KVCache:
        assert old() is None
        return KVCache(*args)

    monkeypatch.setattr("localdiff.engine.prefix_cache.KVCache", made)
    prefix_cache.start_run([9] * 10, 17)
    assert prefix_cache.kv_cache.capacity == 17


def test_a_rewind_that_breaks_off_leaves_nothing_to_build_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rings have been restored, and others not."""
    prefix_cache = new_prefix_cache()
    take_in(prefix_cache, [9] * 20, fork=16)
    prefix_cache.encode([10] * 12)
    held, restore = [*prefix_cache.ids], KVCache._restore

    def break_off(cache: KVCache, length: int) -> None:
        restore(cache, length)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(KVCache, "_restore", break_off)
        prefix_cache.start_run([9] * 16 + [11] * 4, CAPACITY)
    assert take_in(prefix_cache, [*held, 11]) == 0
    assert_same(MODEL, prefix_cache.kv_cache, prefill(MODEL, prefix_cache.ids, CAPACITY))


def test_a_pass_that_breaks_off_leaves_nothing_to_build_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second Ctrl-C, or out of memory, some rings have been overwritten, but the length is the old one."""
    prefix_cache = new_prefix_cache()
    take_in(prefix_cache, [9] * 20, fork=20)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        layer = MODEL.layers[1]
        patch.setattr(layer, "forward", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        prefix_cache.encode([10] * 4)
    assert prefix_cache.ids == ()
    assert take_in(prefix_cache, [9] * 20 + [11] * 2) == 0
    assert_same(MODEL, prefix_cache.kv_cache, prefill(MODEL, prefix_cache.ids, CAPACITY))


def test_it_may_have_been_used_in_inference_mode_first() -> None:
    prefix_cache, prompt = new_prefix_cache(), list(range(4, 4 + RING + 4))
    with torch.inference_mode():
        take_in(prefix_cache, prompt, fork=RING)
    assert take_in(prefix_cache, prompt[:RING]) == RING
    assert_same(MODEL, prefix_cache.kv_cache, prefill(MODEL, prompt[:RING], CAPACITY))
    prefix_cache.clear()


def test_a_cleared_context_holds_nothing() -> None:
    prefix_cache = new_prefix_cache()
    prefix_cache.clear()
    take_in(prefix_cache, [9] * 20, fork=20)
    prefix_cache.clear()
    assert prefix_cache.ids == () and prefix_cache.fork is None
    assert prefix_cache.kv_cache.length == 0
    assert take_in(prefix_cache, [9] * 20) == 0


def test_there_is_no_cache_before_there_is_room() -> None:
    with pytest.raises(RuntimeError, match="allocated by `start_run`"):
        _ = new_prefix_cache().kv_cache


@pytest.mark.parametrize(
    ("one", "other", "length"), [([], [], 0), ([1], [], 0), ([1, 2], [1], 1), ([1, 2], [1, 3], 1), ([1, 2], [1, 2], 2)]
)
def test_the_common_beginning(one: list[int], other: list[int], length: int) -> None:
    assert common_length(one, other) == common_length(other, one) == length
